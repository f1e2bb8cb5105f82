//go:build kubernetes && linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"calico-cni/test/cluster/node"
)

// newRuntimes is a scene whose nodes have the plugins, but no kubelets: the test
// plays them.
func newRuntimes(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	for i, n := range s.nodes {
		s.object("/api/v1/nodes", object{"metadata": object{"name": n.Name}, "status": object{"addresses": []object{
			{"type": "InternalIP", "address": n.Address}, {"type": "InternalIP", "address": n.Address6},
		}}})
		s.installByHand(n)
		s.networkReady(i)
	}
	return s
}

// networkReady waits until containerd has loaded what was installed.
func (s *scene) networkReady(i int) {
	s.Helper()
	s.until("waiting for the network of "+s.nodes[i].Name, func() error {
		conditions, _, err := s.runtimes[i].Status(context.Background())
		if err == nil && conditions["NetworkReady"] != "" {
			err = errors.New(conditions["NetworkReady"])
		}
		return err
	})
}

// play runs a pod as its kubelet would.
func (s *scene) play(i int, name string, attempt uint32) *node.Sandbox {
	s.Helper()
	s.createPod(name, s.nodes[i].Name)
	pod := shared.Admin().Do(s, "GET", pods+"/"+name, nil)
	sandbox, err := s.runtimes[i].RunSandbox(context.Background(), namespace, name, fmt.Sprint(at(pod, "metadata", "uid")), attempt)
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.runtimes[i].Serve(context.Background(), sandbox, "80"); err != nil {
		s.Fatal(err)
	}
	return sandbox
}

func (s *scene) stop(i int, sandbox *node.Sandbox) {
	s.Helper()
	if err := s.runtimes[i].StopSandbox(context.Background(), sandbox.ID); err != nil {
		s.Error(err)
	}
	if err := s.runtimes[i].RemoveSandbox(context.Background(), sandbox.ID); err != nil {
		s.Error(err)
	}
}

// TestContainerdPods: pods of two nodes reach each other by both families, a
// pod's next sandbox takes over, and nothing is left of what was stopped.
func TestContainerdPods(t *testing.T) {
	s := newRuntimes(t)
	a, b := s.play(0, "a", 0), s.play(1, "b", 0)
	for i, sandbox := range []*node.Sandbox{a, b} {
		if len(sandbox.Addresses) != families {
			t.Fatalf("addresses %v", sandbox.Addresses)
		}
		s.inOwnBlocks(s.nodes[i], sandbox.Addresses)
	}
	s.route()
	s.reaches(s.runtimes[0], "a", b.Addresses...)
	s.reaches(s.runtimes[1], "b", a.Addresses...)
	s.serves(s.runtimes[0], "a", "b", b.Addresses...)
	s.holds()

	s.stop(0, a)
	second := s.play(0, "a", 1)
	s.reaches(s.runtimes[1], "b", second.Addresses...)
	s.holds()

	s.stop(0, second)
	s.stop(1, b)
	s.holds()
}

// TestContainerdPowerCut: what TestPowerCut shows of kubelets, without one: the
// pods' next sandboxes come while the addresses of the lost ones are still
// taken, and GC frees exactly those.
func TestContainerdPowerCut(t *testing.T) {
	s := newRuntimes(t)
	s.play(0, "a", 0)
	s.play(0, "gone", 0)
	s.play(1, "b", 0)
	for i, n := range s.nodes {
		s.powerCut(i, runtimeState, libcniCache)
		s.runtimes[i] = n.StartContainerd(t, shared.built.archives()...)
		s.networkReady(i)
	}
	s.deleteNow(pods + "/gone")
	a, b := s.play(0, "a", 1), s.play(1, "b", 1)
	s.route()
	s.reaches(s.runtimes[0], "a", b.Addresses...)
	if handles := s.handles(); len(handles) != 5 {
		t.Errorf("before GC there are handles %v, want those of 3 lost sandboxes and of 2 new ones", handles)
	}
	s.collectGarbage()
	s.holds()
	s.recordsAre(map[string][]string{"a": a.Addresses, "b": b.Addresses})
	s.reaches(s.runtimes[1], "b", a.Addresses...)
	s.stop(0, a)
	s.stop(1, b)
	s.holds()
}
