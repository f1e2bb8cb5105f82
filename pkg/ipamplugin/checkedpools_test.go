package ipamplugin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

// kubernetesNode is a node whose datastore has no transactions and a pool with
// this UID.
func kubernetesNode(t *testing.T, uid string) *node {
	t.Helper()
	n := newNode(t)
	n.store = memory.New(memory.Options{NonTransactional: true})
	n.create(model.KindNode, nodeName, &model.Node{Metadata: model.Metadata{Name: nodeName}})
	n.store.Plant(model.ResourceKey{Kind: model.KindIPPool, Name: "pods"}.Path(),
		`{"metadata":{"name":"pods","uid":"`+uid+`"},"spec":{"cidr":"10.77.0.0/24","blockSize":26}}`)
	return n
}

// checkedNotes are the files in the notes' directory.
func (n *node) checkedNotes() []string {
	n.t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.dir, "run", "checked-pools"))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func (n *node) writeNote(name string) {
	n.t.Helper()
	path := filepath.Join(n.dir, "run", "checked-pools", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// keyLists counts the lists of all blocks so far.
func (n *node) keyLists() int {
	count := 0
	for _, call := range n.store.Calls() {
		if strings.Contains(call.String(), "blocks *") {
			count++
		}
	}
	return count
}

func TestCheckedPoolNotes(t *testing.T) {
	t.Parallel()
	const uid, note = "6f1c2a40-93b7-4d0e-8a51-0c7be2f9d318", "6f1c2a40-93b7-4d0e-8a51-0c7be2f9d318-26"
	t.Run("written by the first claim, with those of pools that are gone removed", func(t *testing.T) {
		t.Parallel()
		n := kubernetesNode(t, uid)
		others := []string{"-26", "README", "a-+26", "b-", uid + "-x"}
		for _, name := range append(others, "gone-26", uid+"-27") {
			n.writeNote(name)
		}
		n.mustAdd()
		if want := slices.Sorted(slices.Values(append(others, note))); !slices.Equal(n.checkedNotes(), want) {
			t.Errorf("there are %q, want %q", n.checkedNotes(), want)
		}
		if n.keyLists() != 1 {
			t.Errorf("%d lists of all blocks", n.keyLists())
		}
	})
	t.Run("believed", func(t *testing.T) {
		t.Parallel()
		n := kubernetesNode(t, uid)
		n.writeNote(note)
		n.mustAdd()
		if n.keyLists() != 0 {
			t.Errorf("%d lists of all blocks", n.keyLists())
		}
	})
	t.Run("not where they could lead elsewhere", func(t *testing.T) {
		t.Parallel()
		n := kubernetesNode(t, "../../x")
		n.mustAdd()
		if _, err := os.Stat(filepath.Join(n.dir, "x-26")); err == nil || len(n.checkedNotes()) != 0 {
			t.Errorf("%v, %q", err, n.checkedNotes())
		}
	})
	t.Run("in an unwritable directory", func(t *testing.T) {
		t.Parallel()
		n := kubernetesNode(t, uid)
		file := filepath.Join(n.dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.mustAdd("ipam_lock_file", filepath.Join(file, "ipam.lock"))
		if told := n.stderr.String(); !strings.Contains(told, "checked pools") {
			t.Errorf("nothing was logged: %s", told)
		}
	})
	t.Run("STATUS writes none", func(t *testing.T) {
		t.Parallel()
		n := kubernetesNode(t, uid)
		if err := os.MkdirAll(filepath.Join(n.dir, "run"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(n.dir, "run", "no-address-net"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := n.plugin.Status(deadline(t), n.call(invocation.Status, n.config())); err != nil {
			t.Fatal(err)
		}
		if n.keyLists() != 1 || len(n.checkedNotes()) != 0 {
			t.Errorf("%d lists, notes %q", n.keyLists(), n.checkedNotes())
		}
	})
}
