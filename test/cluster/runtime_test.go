//go:build kubernetes && linux

package cluster

import (
	"fmt"
	"testing"
)

// TestRuntimeKilled: containerd is killed while it makes sandboxes. The plugins
// that it had started run on without anyone to take their results, beside the
// DELs that the next containerd sends for the same sandboxes. What neither of
// them takes away is for GC.
func TestRuntimeKilled(t *testing.T) {
	const count, first = 20, 2
	s := newCluster(t)
	s.faulty = true // nobody takes the result, or the namespace is gone
	names := s.createPods(count)
	n := s.nodes[0]
	s.until("waiting for the first pods of "+n.Name, func() error {
		if links, err := n.Links("cali"); err != nil || len(links) < first {
			return fmt.Errorf("%d interfaces, %v", len(links), err)
		}
		return nil
	})
	n.Containerd.Kill(t)
	if links, err := n.Links("cali"); err != nil || len(links) >= count/2 {
		t.Fatalf("%d pods were up before containerd was killed: %v", len(links), err)
	}
	s.runtimes[0] = n.StartContainerd(t, shared.built.archives()...)
	addresses := s.running(names...)
	s.live(count)
	s.collectGarbage()
	s.holdsSoon()
	s.route()
	s.crossing(names, addresses)
	s.delete(names...)
	s.holdsSoon()
	s.live(0)
}
