package ipamplugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/hostlock"
	"calico-cni/pkg/invocation"
)

func TestGC(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, id := range []string{"a", "b"} {
		call := n.call(invocation.Add, n.config())
		call.ContainerID = id
		if _, err := n.add(call); err != nil {
			t.Fatal(err)
		}
	}
	foreign := n.call(invocation.Add, n.config("name", "net.b"))
	if _, err := n.add(foreign); err != nil {
		t.Fatal(err)
	}
	n.now = n.now.Add(time.Second)
	gc := func(members ...any) error {
		return n.plugin.GC(deadline(t), n.call(invocation.GC, n.config(members...)))
	}
	if err := gc(); err != nil || len(n.allocated()) != 3 {
		t.Fatalf("both keys absent: %v, allocated %v", err, n.allocated())
	}
	if err := gc("cni.dev/attachments", []any{map[string]any{"containerID": "a", "ifname": "eth0"}}); err != nil {
		t.Fatal(err)
	}
	if held := n.allocated(); len(held) != 2 || held["net.a"] != 1 || held["net.b.c1"] != 1 {
		t.Errorf("allocated %v", held)
	}
	if n.notes() != 2 {
		t.Errorf("%d notes, want 2", n.notes())
	}
	t.Run("the lock is held: nothing is done", func(t *testing.T) {
		lock, err := hostlock.Acquire(deadline(t), filepath.Join(n.dir, "run", "ipam.lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		err = n.plugin.GC(ctx, n.call(invocation.GC, n.config("cni.dev/attachments", nil)))
		wantCode(t, err, cnierr.LockNotObtained, "IPAM lock")
		if len(n.allocated()) != 2 {
			t.Errorf("allocated %v", n.allocated())
		}
	})
}

func TestNotesLeadToDeadHandles(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.store.Plant("/calico/ipam/v2/handle/net.dead", `{"block":{"10.77.0.0/26":1},"deleted":false}`)
	n.store.Plant("/calico/ipam/v2/handle/net.elsewhere", `{"block":{"10.77.0.0/26":1},"deleted":false}`)
	if err := os.MkdirAll(n.plugin.NotesDirectory, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		filepath.Base(notePath("", "net.dead")):      "net.dead",
		filepath.Base(notePath("", "net.elsewhere")): "net.forged",
		"datastore.db": "net.elsewhere",
	} {
		if err := os.WriteFile(filepath.Join(n.plugin.NotesDirectory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.plugin.GC(deadline(t), n.call(invocation.GC, n.config("cni.dev/attachments", nil))); err != nil {
		t.Fatal(err)
	}
	if _, left := n.store.Raw("/calico/ipam/v2/handle/net.dead"); left {
		t.Error("the dead handle with a note is left")
	}
	if _, left := n.store.Raw("/calico/ipam/v2/handle/net.elsewhere"); !left {
		t.Error("a handle without a note was deleted: it may be another node's")
	}
}

// TestGCNotes: containers that have no note, because another plugin connected
// them, are found even if GC dies when their block is written and their handles
// are not.
func TestGCNotes(t *testing.T) {
	t.Parallel()
	n := newNodeOn(t, memory.New(memory.Options{NonTransactional: true}))
	for _, id := range []string{"a", "b"} {
		call := n.call(invocation.Add, n.config())
		call.ContainerID = id
		if _, err := n.add(call); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(n.plugin.NotesDirectory); err != nil {
		t.Fatal(err)
	}
	n.now = n.now.Add(time.Second)
	n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if call.IsWrite() && strings.Contains(call.String(), "handle") {
			return memory.Down(call)
		}
		return nil
	}})
	gc := func() error {
		return n.plugin.GC(deadline(t), n.call(invocation.GC, n.config("cni.dev/attachments", nil)))
	}
	wantCode(t, gc(), cnierr.TryAgainLater, "net.a, net.b: ")
	if len(n.allocated()) != 0 || n.notes() != 2 {
		t.Errorf("allocated %v, %d notes", n.allocated(), n.notes())
	}
	n.store.SetHooks(memory.Hooks{})
	if err := gc(); err != nil || n.notes() != 0 {
		t.Errorf("%v, %d notes", err, n.notes())
	}
	for _, id := range []string{"net.a", "net.b"} {
		if _, left := n.store.Raw("/calico/ipam/v2/handle/" + id); left {
			t.Errorf("the handle %s is left", id)
		}
	}
}
