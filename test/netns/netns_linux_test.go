package netns

import (
	"os"
	"testing"

	"github.com/vishvananda/netns"
)

func TestDoEntersAndLeaves(t *testing.T) {
	outside := current(t)
	inner, outer := New(t), New(t)

	outer.Do(t, func() {
		if got := current(t); got != outer.handle.UniqueId() {
			t.Errorf("in %s: thread is in %s", outer.Name(), got)
		}
		inner.Do(t, func() {
			if got := current(t); got != inner.handle.UniqueId() {
				t.Errorf("in %s: thread is in %s", inner.Name(), got)
			}
		})
		if got := current(t); got != outer.handle.UniqueId() {
			t.Errorf("after the inner call: thread is in %s", got)
		}
	})
	if got := current(t); got != outside {
		t.Errorf("afterwards the thread is in %s, not in %s", got, outside)
	}
}

func TestNewIsRemovedWithItsTest(t *testing.T) {
	var path string
	t.Run("life", func(t *testing.T) {
		path = New(t).Path()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("a new namespace has no file: %v", err)
		}
	})
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s outlived its test: %v", path, err)
	}
}

func TestRemove(t *testing.T) {
	n := New(t)
	for range 2 {
		n.Remove(t)
		if _, err := os.Stat(n.Path()); !os.IsNotExist(err) {
			t.Errorf("%s outlived its removal: %v", n.Path(), err)
		}
	}
}

func current(t *testing.T) string {
	t.Helper()
	handle, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	return handle.UniqueId()
}
