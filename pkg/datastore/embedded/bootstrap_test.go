package embedded

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

const node = "laptop"

func pool(name, cidr string, blockSize int) *model.IPPool {
	return &model.IPPool{Metadata: model.Metadata{Name: name}, RawCIDR: cidr, BlockSize: blockSize}
}

func mustOpen(t *testing.T, path string, bootstrap Bootstrap) (*Store, []string) {
	t.Helper()
	store, warnings, err := Open(withDeadline(t), path, bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	return store, warnings
}

func mustGet[T any](t *testing.T, store datastore.Store, key model.Key) *T {
	t.Helper()
	answers, err := store.Read(withDeadline(t), datastore.Get{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	value, _ := datastore.One[T](answers[0])
	if value == nil {
		t.Fatalf("the %s does not exist", key)
	}
	return value
}

func TestFirstUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "datastore")
	store, warnings := mustOpen(t, path, Bootstrap{NodeName: node, Pools: []*model.IPPool{pool("pods", "10.77.0.0/16", 0)}})
	if len(warnings) != 0 {
		t.Errorf("warnings: %q", warnings)
	}
	cluster := mustGet[model.ClusterInformation](t, store, model.ResourceKey{Kind: model.KindClusterInformation, Name: "default"})
	if cluster.Ready == nil || !*cluster.Ready || len(cluster.GUID) != 32 {
		t.Errorf("the cluster information is %+v", cluster)
	}
	mustGet[model.Node](t, store, model.ResourceKey{Kind: model.KindNode, Name: node})
	made := mustGet[model.IPPool](t, store, model.ResourceKey{Kind: model.KindIPPool, Name: "pods"})
	if made.RawCIDR != "10.77.0.0/16" || made.BlockSize != 26 || made.NodeSelector != "all()" || made.Metadata.UID == "" {
		t.Errorf("the pool is %+v", made)
	}
	if names := namesIn(t, filepath.Dir(path)); len(names) != 1 {
		t.Errorf("left beside the file: %q", names)
	}
}

func namesIn(t *testing.T, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// TestOpenAgain demands that an Open that finds everything writes nothing.
func TestOpenAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "datastore")
	bootstrap := Bootstrap{NodeName: node, Pools: []*model.IPPool{pool("pods", "fd00:0:0:1::/64", 0)}}
	mustOpen(t, path, bootstrap)
	before := content(t, path)
	bootstrap.Pools = []*model.IPPool{pool("pods", "FD00:0:0:1::0/64", 122)} // the same range
	if _, warnings := mustOpen(t, path, bootstrap); len(warnings) != 0 {
		t.Errorf("warnings: %q", warnings)
	}
	if !bytes.Equal(content(t, path), before) {
		t.Error("the file was written")
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDeclaredPools(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "datastore")
	mustOpen(t, path, Bootstrap{NodeName: node, Pools: []*model.IPPool{pool("kept", "10.77.0.0/16", 26), pool("same", "10.78.0.0/16", 26)}})
	for _, row := range []struct {
		name     string
		declared *model.IPPool
		warning  string
	}{
		{"as it is", pool("same", "10.78.0.0/16", 0), ""},
		{"new", pool("new", "10.79.0.0/16", 28), ""},
		{"other range", pool("kept", "10.80.0.0/16", 26), "10.80.0.0/16"},
		{"other block size", pool("kept", "10.77.0.0/16", 28), "block size 28"},
		{"not a range", pool("kept", "ten", 26), `"ten"`},
	} {
		store, warnings := mustOpen(t, path, Bootstrap{NodeName: node, Pools: []*model.IPPool{row.declared}})
		text := strings.Join(warnings, "; ")
		if (row.warning == "") != (text == "") || row.warning != "" && !strings.Contains(text, strings.Trim(row.warning, `"`)) {
			t.Errorf("%s: warnings %q, want one of %q", row.name, warnings, row.warning)
		}
		kept := mustGet[model.IPPool](t, store, model.ResourceKey{Kind: model.KindIPPool, Name: "kept"})
		if kept.RawCIDR != "10.77.0.0/16" || kept.BlockSize != 26 {
			t.Errorf("%s: the pool in use became %+v", row.name, kept)
		}
		mustGet[model.IPPool](t, store, model.ResourceKey{Kind: model.KindIPPool, Name: row.declared.Metadata.Name})
	}
	twice := []*model.IPPool{pool("a", "10.90.0.0/16", 0), pool("a", "10.91.0.0/16", 0)}
	if _, _, err := Open(withDeadline(t), path, Bootstrap{NodeName: node, Pools: twice}); err == nil {
		t.Error("a pool declared twice is no error")
	}
}

// TestFirstUseAtOnce lets several openers find no file.
func TestFirstUseAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "datastore")
	guids := make([]string, 8)
	var all sync.WaitGroup
	for i := range guids {
		all.Go(func() {
			store, _, err := Open(withDeadline(t), path, Bootstrap{NodeName: node})
			if err != nil {
				t.Error(err)
				return
			}
			answers, err := store.Read(withDeadline(t), datastore.Get{Key: model.ResourceKey{Kind: model.KindClusterInformation, Name: "default"}})
			if err != nil {
				t.Error(err)
				return
			}
			cluster, _ := datastore.One[model.ClusterInformation](answers[0])
			guids[i] = cluster.GUID
		})
	}
	all.Wait()
	for _, guid := range guids {
		if guid == "" || guid != guids[0] {
			t.Fatalf("several clusters were made: %q", guids)
		}
	}
}

// TestAbandoned finds what killed creators left.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	path := filepath.Join(directory, "datastore")
	old, recent := path+".new-1", path+".new-2"
	for _, leftover := range []string{old, recent} {
		if err := os.WriteFile(leftover, []byte("half a fi"), filePermissions); err != nil {
			t.Fatal(err)
		}
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(old, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path, Bootstrap{NodeName: node})
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old leftover: %v", err)
	}
	if _, err := os.Stat(recent); err != nil {
		t.Errorf("the recent one, perhaps in use: %v", err)
	}
}
