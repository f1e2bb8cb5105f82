//go:build kubernetes && linux

package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
)

// TestServerKilled: the API server is killed while pods come up. With it back
// everything converges, and nothing was given twice or lost.
func TestServerKilled(t *testing.T) {
	const count, first = 30, 5
	s := newCluster(t)
	s.faulty = true
	names := s.createPods(count)
	s.until("waiting for the first pods", func() error {
		if found := s.interfaces(); found < first {
			return fmt.Errorf("%d interfaces", found)
		}
		return nil
	})
	restart := s.killServer()
	if found := s.interfaces(); found >= count {
		t.Fatalf("all %d pods were up before the server was killed", found)
	}
	s.until("waiting for an ADD to fail", func() error {
		for _, n := range s.nodes {
			if len(s.errorsOf(n)) > 0 {
				return nil
			}
		}
		return errors.New("no plugin complains")
	})
	restart()
	addresses := s.running(names...)
	s.live(count)
	s.holdsSoon()
	s.route()
	s.crossing(names, addresses)
	s.delete(names...)
	s.holdsSoon()
	s.live(0)
}

// killServer kills the API server and returns what starts it again, at the end
// of the test if not before.
func (s *scene) killServer() (restart func()) {
	s.Helper()
	shared.Stop()
	restart = sync.OnceFunc(func() { shared.Restart(s) })
	s.Cleanup(restart)
	return restart
}

// interfaces counts those of pods on all nodes.
func (s *scene) interfaces() int {
	s.Helper()
	count := 0
	for _, n := range s.nodes {
		links, err := n.Links("cali")
		if err != nil {
			s.Fatal(err)
		}
		count += len(links)
	}
	return count
}

// sandboxes counts those of all nodes that are on the network.
func (s *scene) sandboxes() int {
	s.Helper()
	return len(s.sandboxAddresses())
}

// TestReboot: the nodes lose power, and nothing of their disks. The kubelets
// find dead sandboxes and send DEL for each, long after its namespace is gone.
func TestReboot(t *testing.T) {
	const count = 6
	s := newCluster(t)
	names := s.createPods(count)
	s.running(names...)
	s.holds()
	before := s.handles()
	for i, n := range s.nodes {
		s.powerCut(i)
		s.runtimes[i] = n.StartContainerd(t, shared.built.archives()...)
		s.startKubelet(i)
	}
	addresses := s.restarted(names)
	s.holdsSoon()
	for _, handle := range s.handles() {
		if slices.Contains(before, handle) {
			t.Errorf("%s outlived the reboot", handle)
		}
	}
	s.recordsAre(addresses)
	s.delete(names...)
	s.holdsSoon()
}

// TestPowerCut: the nodes lose power, and their runtimes' state with it, so
// that no DEL is ever sent. New sandboxes work at once, and one GC leaves
// exactly what is theirs.
func TestPowerCut(t *testing.T) {
	const count = 6
	s := newCluster(t)
	names := s.createPods(count)
	s.running(names...)
	s.holds()
	before := s.handles()
	s.powerCut(0, runtimeState)
	s.powerCut(1, runtimeState, libcniCache)
	// Pods that are deleted meanwhile get no new sandbox either.
	gone, kept := names[:2], names[2:]
	for _, name := range gone {
		s.deleteNow(pods + "/" + name)
	}
	for i, n := range s.nodes {
		s.runtimes[i] = n.StartContainerd(t, shared.built.archives()...)
		s.startKubelet(i)
	}
	addresses := s.restarted(kept)
	if handles := s.handles(); len(handles) != len(before)+len(kept) {
		t.Errorf("before GC there are handles %v, want those of before %v and %d more", handles, before, len(kept))
	}
	s.collectGarbage()
	s.holds()
	s.recordsAre(addresses)
	s.delete(kept...)
	s.holdsSoon()
}

// restarted waits until pods run in new sandboxes on rebooted nodes and answer
// each other, and returns their addresses.
func (s *scene) restarted(names []string) map[string][]string {
	s.Helper()
	s.until("waiting for the pods' new sandboxes", func() error {
		if found := s.sandboxes(); found != len(names) {
			return fmt.Errorf("%d sandboxes", found)
		}
		return nil
	})
	addresses := s.sandboxAddresses()
	s.route()
	s.until("waiting for the pods' servers", func() error { return s.answers(names, addresses) })
	return addresses
}

// What a node's disk may lose with its power: what the runtime knows of its
// sandboxes, and what libcni has noted of their attachments.
const (
	runtimeState = "/var/lib/containerd"
	libcniCache  = "/var/lib/cni"
)

// powerCut ends a node and boots it again, without these folders.
func (s *scene) powerCut(i int, lost ...string) {
	s.Helper()
	n := s.nodes[i]
	n.PowerOff(s)
	n.Boot(s)
	for _, folder := range lost {
		if err := os.RemoveAll(n.File(folder)); err != nil {
			s.Fatal(err)
		}
	}
}

// collectGarbage runs one GC per node, with the sandboxes that live.
func (s *scene) collectGarbage() {
	s.Helper()
	for i, n := range s.nodes {
		live, err := s.onNetwork(i)
		if err != nil {
			s.Fatal(err)
		}
		if err := n.CollectGarbage(live); err != nil {
			s.Error(err)
		}
	}
}

// sandboxAddresses are the addresses of all sandboxes by their pods' names.
func (s *scene) sandboxAddresses() map[string][]string {
	s.Helper()
	addresses := map[string][]string{}
	for i := range s.nodes {
		found, err := s.onNetwork(i)
		if err != nil {
			s.Fatal(err)
		}
		for _, sandbox := range found {
			addresses[sandbox.Name] = sandbox.Addresses
		}
	}
	return addresses
}

// answers asks every pod's server from the first pod.
func (s *scene) answers(names []string, addresses map[string][]string) error {
	for _, name := range names {
		for _, address := range addresses[name] {
			if err := s.asks(s.runtimes[0], names[0], name, net.JoinHostPort(address, "80")); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordsAre checks that pods are recorded with exactly these addresses.
func (s *scene) recordsAre(addresses map[string][]string) {
	s.Helper()
	for _, pod := range s.list(pods) {
		got, want := recorded(pod), addresses[nameOf(pod)]
		if fmt.Sprint(got) != fmt.Sprint(want) {
			s.Errorf("%s is recorded with %v, its sandbox has %v", nameOf(pod), got, want)
		}
	}
}
