//go:build kubernetes && linux

package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"calico-cni/test/cluster/node"
)

// newCluster is a scene whose nodes have kubelets and the plugins, and are ready.
func newCluster(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	for i := range s.nodes {
		s.startKubelet(i)
	}
	s.runInstallers()
	s.nodesReady()
	return s
}

func (s *scene) startKubelet(i int) *node.Program {
	s.Helper()
	n := s.nodes[i]
	return n.StartKubelet(s, shared.InlineKubeconfig(s, kubeletToken(n.Name)))
}

func (s *scene) nodesReady() {
	s.Helper()
	for _, n := range s.nodes {
		s.until("waiting for "+n.Name+" to be ready", func() error {
			answer, err := get(shared.Admin(), "/api/v1/nodes/"+n.Name)
			if err != nil {
				return err
			}
			return condition(answer, "Ready")
		})
	}
}

// condition returns why a condition of an object's status is not true.
func condition(o object, kind string) error {
	conditions, _ := at(o, "status", "conditions").([]any)
	for _, c := range conditions {
		if c := c.(object); c["type"] == kind {
			if c["status"] == "True" {
				return nil
			}
			return fmt.Errorf("%s: %v %v", nameOf(o), c["reason"], c["message"])
		}
	}
	return fmt.Errorf("%s has no condition %s yet", nameOf(o), kind)
}

// running waits until pods are ready and returns their addresses by name.
func (s *scene) running(names ...string) map[string][]string {
	s.Helper()
	addresses := map[string][]string{}
	for _, name := range names {
		s.until("waiting for "+name, func() error {
			pod, err := get(shared.Admin(), pods+"/"+name)
			if err != nil {
				return err
			}
			if err := condition(pod, "Ready"); err != nil {
				return err
			}
			addresses[name], err = podAddresses(pod)
			return err
		})
	}
	return addresses
}

// podAddresses are those that the runtime told the kubelet; what the plugin
// recorded must be the same.
func podAddresses(pod object) ([]string, error) {
	var told []string
	ips, _ := at(pod, "status", "podIPs").([]any)
	for _, ip := range ips {
		told = append(told, fmt.Sprint(ip.(object)["ip"]))
	}
	if recorded := recorded(pod); !slices.Equal(recorded, told) || len(told) != families {
		return nil, fmt.Errorf("%s has addresses %v, recorded are %v", nameOf(pod), told, recorded)
	}
	return told, nil
}

// delete deletes pods as a user does and waits until their kubelets let go.
func (s *scene) delete(names ...string) {
	s.Helper()
	for _, name := range names {
		shared.Admin().Do(s, http.MethodDelete, pods+"/"+name, nil)
	}
	s.until("waiting for the pods to be gone", func() error {
		if left := s.list(pods); len(left) > 0 {
			return fmt.Errorf("%d pods, %s among them", len(left), nameOf(left[0]))
		}
		return nil
	})
}

// holdsSoon waits for the numbers: a kubelet removes sandboxes in its own time.
func (s *scene) holdsSoon() {
	s.Helper()
	s.until("waiting for the numbers to agree", s.numbers)
}

// live checks how many sandboxes are on the network of both nodes.
func (s *scene) live(want int) {
	s.Helper()
	found := 0
	for i := range s.nodes {
		sandboxes, err := s.onNetwork(i)
		if err != nil {
			s.Fatal(err)
		}
		found += len(sandboxes)
	}
	if found != want {
		s.Errorf("%d sandboxes, want %d", found, want)
	}
}

// on returns the index of the node that the i-th pod goes to.
func (s *scene) on(i int) int { return i % len(s.nodes) }

// createPods creates pods on all nodes in turn.
func (s *scene) createPods(count int) []string {
	s.Helper()
	var names []string
	for i := range count {
		name := fmt.Sprintf("pod-%02d", i)
		s.createPod(name, s.nodes[s.on(i)].Name)
		names = append(names, name)
	}
	return names
}

// crossing checks every pair of one pod per node, both ways.
func (s *scene) crossing(names []string, addresses map[string][]string) {
	s.Helper()
	var pings sync.WaitGroup
	for i, name := range names {
		var others []string
		for j, other := range names {
			if s.on(i) != s.on(j) {
				others = append(others, addresses[other]...)
			}
		}
		pings.Go(func() { s.reaches(s.runtimes[s.on(i)], name, others...) })
	}
	pings.Wait()
}

// TestPods: what pods on two nodes get, that they reach each other, and that
// nothing is left of them.
func TestPods(t *testing.T) {
	const count = 20
	s := newCluster(t)
	names := s.createPods(count)
	addresses := s.running(names...)
	seen := map[string]string{}
	for i, name := range names {
		s.inOwnBlocks(s.nodes[s.on(i)], addresses[name])
		for _, address := range addresses[name] {
			if other := seen[address]; other != "" {
				t.Errorf("%s is the address of %s and %s", address, other, name)
			}
			seen[address] = name
		}
	}
	s.route()
	s.crossing(names, addresses)
	s.serves(s.runtimes[0], names[0], names[1], addresses[names[1]]...)
	s.serves(s.runtimes[1], names[1], names[0], addresses[names[0]]...)
	s.live(count)
	s.holds()
	s.delete(names...)
	s.holdsSoon()
	s.live(0)
}
