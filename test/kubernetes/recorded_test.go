//go:build kubernetes && linux

package kubernetes

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// plurals of the kinds that were recorded.
var plurals = map[string]string{
	"IPPool": "ippools", "IPAMBlock": "ipamblocks", "BlockAffinity": "blockaffinities", "IPAMHandle": "ipamhandles",
	"IPAMConfig": "ipamconfigs", "ClusterInformation": "clusterinformations",
}

// plantRecorded creates what Calico v3.32.1 left in a cluster after two pods
// were added, and returns the paths.
func (e *env) plantRecorded() []string {
	e.Helper()
	root, err := kubetest.Root()
	if err != nil {
		e.Fatal(err)
	}
	file, err := os.Open(filepath.Join(root, "testdata", "kubernetes", "recorded.jsonl"))
	if err != nil {
		e.Fatal(err)
	}
	defer file.Close()
	var paths []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		decoder := json.NewDecoder(strings.NewReader(lines.Text()))
		decoder.UseNumber()
		var object map[string]any
		if err := decoder.Decode(&object); err != nil {
			e.Fatal(err)
		}
		plural, custom := plurals[object["kind"].(string)]
		if !custom {
			continue // pods have a test of their own
		}
		metadata := object["metadata"].(map[string]any)
		for _, name := range []string{"resourceVersion", "uid", "creationTimestamp"} {
			delete(metadata, name)
		}
		cluster.Admin().Do(e, "POST", e.path(plural)+"?fieldValidation=Strict", object)
		paths = append(paths, e.path(plural, metadata["name"].(string)))
	}
	return paths
}

// settled is an object without what every write changes.
func settled(object map[string]any) map[string]any {
	out := maps.Clone(object)
	metadata := maps.Clone(object["metadata"].(map[string]any))
	for _, name := range []string{"resourceVersion", "generation", "managedFields"} {
		delete(metadata, name)
	}
	out["metadata"] = metadata
	return out
}

// TestRecordedObjects: what the reference wrote passes our definitions, and is
// the same after it was read and written back, metadata and all.
func TestRecordedObjects(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	paths := e.plantRecorded()
	e.proxy.Hook(strict)
	before := map[string]map[string]any{}
	for _, path := range paths {
		before[path] = settled(e.object(path))
	}
	store := e.open()
	const handle = "k8s-pod-network.3f9c0b7d5a1e4c2f8a6b9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c"
	for _, key := range []model.Key{
		blockKey("10.77.0.0/26"), affinityKey("worker-b", "10.77.0.0/26"), model.HandleKey{ID: handle}, model.IPAMConfigKey{},
		model.ResourceKey{Kind: model.KindIPPool, Name: "pods"},
		model.ResourceKey{Kind: model.KindClusterInformation, Name: "default"},
	} {
		value, revision := e.get(store, key)
		if value == nil {
			t.Errorf("the %s is not found", key)
			continue
		}
		e.write(store, datastore.Step{datastore.Put(key, value, revision)})
	}
	for _, path := range paths {
		if after := settled(e.object(path)); !reflect.DeepEqual(after, before[path]) {
			t.Errorf("%s\nwas %v\nis  %v", path, before[path], after)
		}
	}
}

// TestRecordedCluster goes on where the reference stopped.
func TestRecordedCluster(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.plantRecorded()
	for _, node := range []string{"worker-b"} {
		cluster.Admin().Do(t, "POST", "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": node}})
	}
	store := e.open()
	info, _ := e.get(store, model.ResourceKey{Kind: model.KindClusterInformation, Name: "default"})
	if ready := info.(*model.ClusterInformation).Ready; ready == nil || !*ready {
		t.Error("the cluster does not count as ready")
	}
	if address := e.assign(store, "worker-b", "ours", 1)[0]; address.String() != "10.77.0.2/26" {
		t.Errorf("the third address is %s", address)
	}
	e.consistent(3)
	for _, container := range []string{
		"3f9c0b7d5a1e4c2f8a6b9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c", "a7e10c5599f24d01b0b1c2d3e4f5061728394a5b6c7d8e9f00112233445566aa", "ours",
	} {
		e.release(store, container)
	}
	e.consistent(0)
}
