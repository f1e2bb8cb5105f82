package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// together runs functions at once and waits for all.
func together(functions ...func()) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for _, f := range functions {
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-start
			f()
		}()
	}
	close(start)
	wg.Wait()
}

func TestConformanceRaces(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{"IPAM/53 eight ADDs at once on a fresh node", func(t *testing.T, c *cluster) {
			c.p26()
			var mu sync.Mutex
			seen := map[netip.Prefix]bool{}
			var adds []func()
			for i := range 8 {
				adds = append(adds, func() {
					r := c.request("worker-b", fmt.Sprint("c", i), 1)
					result, err := c.ipam.Assign(c.ctx(), r)
					if err != nil || len(result.IPv4.Addresses) != 1 {
						t.Errorf("%d: %+v, %v", i, result, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					seen[result.IPv4.Addresses[0]] = true
				})
			}
			together(adds...)
			if len(seen) != 8 {
				t.Errorf("%d different addresses", len(seen))
			}
			if got := c.count("/calico/ipam/v2/assignment/"); got != 1 {
				t.Errorf("%d blocks", got)
			}
		}},
		{"IPAM/54 two hosts race for the last block", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			for range 3 {
				c.fullBlockIn("10.77.0.0/24", "worker-c")
			}
			assigned := make([]int, 2)
			together(
				func() { assigned[0] = c.tryAssign("worker-a", "one") },
				func() { assigned[1] = c.tryAssign("worker-b", "two") },
			)
			if assigned[0]+assigned[1] != 1 {
				t.Errorf("assigned %v, want one winner", assigned)
			}
			loser := "worker-a"
			if assigned[0] == 1 {
				loser = "worker-b"
			}
			if c.count("/calico/ipam/v2/host/"+loser+"/") != 0 {
				t.Errorf("%s has an affinity left", loser)
			}
		}},
		{"ADD and DEL of many hosts at once", func(t *testing.T, c *cluster) {
			c.p26()
			c.pool("more", "10.78.0.0/24", 26)
			var verbs []func()
			for _, host := range []string{"worker-a", "worker-b", "worker-c"} {
				for i := range 6 {
					name := fmt.Sprint(host, "-", i)
					verbs = append(verbs, func() {
						for range 3 {
							c.tryAssign(host, name)
							if err := c.ipam.ReleaseByHandle(c.ctx(), "k8s-pod-network."+name); err != nil {
								t.Error(err)
							}
						}
						c.tryAssign(host, name)
					})
				}
			}
			together(verbs...)
			if got := c.count("/calico/ipam/v2/handle/"); got != 18 {
				t.Errorf("%d handles, want 18", got)
			}
		}},
	})
}

// tryAssign returns how many addresses a request for one got.
func (c *cluster) tryAssign(host, container string) int {
	result, err := c.ipam.Assign(c.ctx(), c.request(host, container, 1))
	if err != nil {
		c.Errorf("%s on %s: %v", container, host, err)
	}
	return len(result.IPv4.Addresses)
}

// TestReclaimRace: the owner takes an address of its empty block just before
// another host reclaims it.
func TestReclaimRace(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.emptyBlockOf("worker-a", "worker-c")
		c.clock.advance(2 * time.Minute)
		c.beforeWriteOf("10.77.0.192/26", func() { c.competitor().assign("worker-a", "rival", 1) })
		got := c.assign("worker-b", "one", 1)
		if len(got) != 1 {
			t.Fatalf("got %v", got)
		}
		if owner := c.block("10.77.0.192/26").Affinity; owner != "host:worker-a" {
			t.Errorf("owner %s", owner)
		}
	})
}

// TestPoolDeletedDuringClaim: the claim fails, and no block of the pool
// appears.
func TestPoolDeletedDuringClaim(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	c.beforeWriteOf("10.77.0.0/26", func() { c.store.Uproot(model.ResourceKey{Kind: model.KindIPPool, Name: "pods"}.Path()) })
	_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
	wantText(t, err, "cannot find a qualified ippool")
	if c.count("/calico/ipam/") != 0 {
		t.Error("something was written")
	}
}

// TestSiblingClaimsElsewhere: another process of this host, having lost the
// same race, has claimed a block with room.
func TestSiblingClaimsElsewhere(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.beforeWriteOf("10.77.0.0/26", func() {
			if err := claimFor(c, "worker-a", "10.77.0.0/26", c.request("worker-a", "rival", 1)); err != nil {
				t.Error(err)
			}
			if err := claimFor(c, "worker-b", "10.77.0.128/26", c.request("worker-b", "sibling", 1)); err != nil {
				t.Error(err)
			}
		})
		c.want(c.assign("worker-b", "one", 1), "10.77.0.129/26")
	})
}

// TestReclaimInterrupted: the answer to the last request of a reclaim is lost,
// and a third host claims the block before that is found out.
func TestReclaimInterrupted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{NonTransactional: true})
	c.p26()
	c.emptyBlockOf("worker-a", "worker-c")
	c.clock.advance(2 * time.Minute)
	affinity := model.AffinityKey{Type: model.AffinityHost, Host: "worker-a", CIDR: netip.MustParsePrefix("10.77.0.192/26")}
	lost := false
	c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if lost || !writes(call, affinity) || call.Steps[0][0].Op != datastore.Delete {
			return nil
		}
		lost = true
		c.competitor().assign("worker-c", "rival", 1)
		return memory.LoseAnswer(call)
	}})
	c.assign("worker-b", "one", 1)
	if !lost || c.affinity("worker-a", "10.77.0.192/26") != nil {
		t.Error("the affinity of worker-a is left")
	}
	verifyConsistent(t, c.store)
}
