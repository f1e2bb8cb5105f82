package netns

import (
	"crypto/rand"
	"encoding/hex"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
)

// directory is where ip-netns(8) and the library keep the named namespaces.
const directory = "/run/netns"

// Namespace is a named network namespace that lives as long as its test.
type Namespace struct {
	name   string
	handle netns.NsHandle
}

// New makes a namespace with a name nobody else has; it is removed when the
// test ends. Its loopback is down, as in a fresh pod.
func New(t testing.TB) *Namespace {
	t.Helper()
	name := "calico-cni-test-" + suffix(t)

	// The library leaves the thread in the namespace it made.
	runtime.LockOSThread()
	origin, err := netns.Get()
	if err != nil {
		t.Fatalf("opening the machine's network namespace: %v", err)
	}
	defer origin.Close()
	handle, err := netns.NewNamed(name)
	if err != nil {
		t.Fatalf("making network namespace %s (root is needed): %v", name, err)
	}
	restore(t, origin)

	n := &Namespace{name: name, handle: handle}
	t.Cleanup(func() { n.Remove(t) })
	return n
}

// Remove removes the namespace before its test ends, as a runtime may do before
// it calls DEL. The kernel destroys it, and the links that ended in it, some
// time after the last of its users is gone.
func (n *Namespace) Remove(t testing.TB) {
	t.Helper()
	if !n.handle.IsOpen() {
		return
	}
	n.handle.Close()
	n.handle = netns.None()
	if err := netns.DeleteNamed(n.name); err != nil {
		t.Errorf("removing network namespace %s: %v", n.name, err)
	}
}

func suffix(t testing.TB) string {
	t.Helper()
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatalf("naming a network namespace: %v", err)
	}
	return hex.EncodeToString(random[:])
}

// restore brings the locked thread back. If that fails the thread stays locked,
// so that the runtime destroys it with the goroutine.
func restore(t testing.TB, origin netns.NsHandle) {
	t.Helper()
	if err := netns.Set(origin); err != nil {
		t.Fatalf("returning to the machine's network namespace: %v", err)
	}
	runtime.UnlockOSThread()
}

// Name is the name that ip-netns(8) shows.
func (n *Namespace) Name() string { return n.name }

// Path is what a runtime would pass as CNI_NETNS.
func (n *Namespace) Path() string { return filepath.Join(directory, n.name) }

// Handle is the open namespace; the test must not close it.
func (n *Namespace) Handle() netns.NsHandle { return n.handle }

// Do runs fn on the calling goroutine with its thread in the namespace. Do may
// be nested. Goroutines that fn starts are not in the namespace.
func (n *Namespace) Do(t testing.TB, fn func()) {
	t.Helper()
	runtime.LockOSThread()
	origin, err := netns.Get()
	if err != nil {
		t.Fatalf("opening the thread's network namespace: %v", err)
	}
	defer origin.Close()
	if err := netns.Set(n.handle); err != nil {
		t.Fatalf("entering network namespace %s: %v", n.name, err)
	}
	defer restore(t, origin)
	fn()
}
