package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// TestLargeRequest: more blocks than one transaction may write.
func TestLargeRequest(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.pool("pods", "10.77.0.0/20", 26)
		result, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1000))
		if err != nil || len(result.IPv4.Addresses) != 1000 {
			t.Fatalf("%d addresses, %v", len(result.IPv4.Addresses), err)
		}
		for _, call := range c.store.Calls() {
			size := len(call.Queries)
			for _, step := range call.Steps {
				size += len(step)
			}
			if size > 128 {
				t.Errorf("%d operations: %s", size, call)
			}
		}
		c.release("one")
		c.wantGone("k8s-pod-network.one")
	})
}

// TestManyBlocks: a handle in more blocks than one transaction may write.
func TestManyBlocks(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.pool("pods", "10.77.0.0/23", 30)
		r := c.request("worker-b", "one", 400)
		r.MaxBlocks = 100
		if result, err := c.ipam.Assign(c.ctx(), r); err != nil || len(result.IPv4.Addresses) != 400 {
			t.Fatalf("%d addresses, %v", len(result.IPv4.Addresses), err)
		}
		c.release("one")
		c.wantGone("k8s-pod-network.one")
	})
}

// TestBorrowFromMany: the walk for lenders goes on when those it found are
// used up.
func TestBorrowFromMany(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.pool("pods", "10.77.0.0/21", 30)
		for i := range 512 {
			cidr := blockRange{netip.MustParsePrefix("10.77.0.0/21"), 30}.at(newUint128(i))
			block := model.NewBlock(cidr, "host:worker-a", c.clock.Now(), nil)
			block.Allocate(3, model.Attribute{Owner: map[string]string{"node": "worker-a"}}, nil)
			c.put(model.BlockKey{CIDR: cidr}, block)
			c.plantAffinity("worker-a", cidr.String(), `{"state":"confirmed"}`)
		}
		result, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 513))
		if err != nil || len(result.IPv4.Addresses) != 512 {
			t.Fatalf("%d addresses, %v", len(result.IPv4.Addresses), err)
		}
		wantContains(t, result.IPv4.Short, "No IPs available in pools: [10.77.0.0/21]")
	})
}

// TestLargeRequestUndone: what was written before IPv6 ran short is given
// back.
func TestLargeRequestUndone(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.pool("pods", "10.77.0.0/20", 26)
		c.pool("pods-v6", "fd00::1/128", 128)
		r := c.request("worker-b", "one", 1000)
		r.Count6 = 2
		result, err := c.ipam.Assign(c.ctx(), r)
		wantText(t, err, "failed to request IPv6 addresses: Assigned 1 out of 2")
		if len(result.IPv4.Addresses)+len(result.IPv6.Addresses) > 0 {
			t.Error("addresses are returned")
		}
		c.wantGone("k8s-pod-network.one")
	})
}

// TestEndlessConflicts: 100 lost races are an error with the known text.
func TestEndlessConflicts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	c.assign("worker-b", "other", 1)
	attempts := 0
	c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if call.IsWrite() {
			attempts++
			c.rewrite(call)
		}
		return nil
	}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e := c.ipam.engine("worker-b")
	d := &assignment{request: &Request{Host: "worker-b", HandleID: "h", Count4: 1, Use: "Workload"}, facts: e.facts, transactional: true}
	if err := e.read(ctx, AssignQueries(*d.request)...); err != nil {
		t.Fatal(err)
	}
	e.Allocator.pause = func(context.Context, int) error { return nil }
	err := e.run(ctx, d.decide)
	wantText(t, err, "Max retries hit - excessive concurrent IPAM requests")
	if attempts != maxRounds || !errors.Is(err, datastore.ErrConflict) {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

// TestDeadlineEndsWaiting: a verb that loses race after race ends with its
// deadline.
func TestDeadlineEndsWaiting(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := wait(ctx, 50); !errors.Is(err, datastore.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestProbeRequest(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{"would succeed", func(t *testing.T, c *cluster) {
			c.p26()
			c.wantProbe(0)
		}},
		{"would succeed after a stale affinity is dropped", func(t *testing.T, c *cluster) {
			c.finalizedPool("pods", "10.77.0.0/24")
			c.assign("worker-a", "other", 1)
			c.plantAffinity("worker-b", "10.77.0.192/26", `{"state":"pending"}`)
			c.wantProbe(0)
		}},
		{"full", func(t *testing.T, c *cluster) {
			c.p26()
			for range 4 {
				c.fullBlockIn("10.77.0.0/24", "worker-a")
			}
			c.wantProbe(cnierr.AddressesExhausted)
		}},
		{"no pool", func(t *testing.T, c *cluster) { c.wantProbe(cnierr.NoPool) }},
		{"limit", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(`{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":1}`)
			c.assign("worker-b", "fill", 64)
			c.wantProbe(cnierr.BlockLimit)
		}},
	})
}

func (c *cluster) wantProbe(code cnierr.Code) {
	c.Helper()
	before := c.store.Dump()
	c.store.ForgetCalls()
	err := c.ipam.Probe(c.ctx(), c.request("worker-b", "one", 1))
	if code == 0 && err != nil {
		c.Error(err)
	}
	if code != 0 {
		wantCode(c.T, err, code)
	}
	if c.store.Dump() != before || c.store.Writes() != 0 {
		c.Error("something was written")
	}
	if c.store.Reads() > probeRounds {
		c.Errorf("%d reads", c.store.Reads())
	}
}

// TestRequestedAddress are the cases of a requested address beside the
// conformance table.
func TestRequestedAddress(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{"taken", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			_, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "two", "10.77.0.0"))
			wantCode(t, err, cnierr.AddressTaken)
			wantText(t, err, "Address already assigned in block")
		}},
		{"cools down", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(`{"auto_allocate_blocks":true,"ipCooldownSeconds":30}`)
			c.assign("worker-b", "one", 1)
			c.release("one")
			_, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "two", "10.77.0.0"))
			wantCode(t, err, cnierr.AddressTaken)
		}},
		{"in a new block although blocks are not allocated automatically", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(`{"strict_affinity":true}`)
			got, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.200"))
			if err != nil || got != netip.MustParsePrefix("10.77.0.200/26") {
				t.Errorf("%s, %v", got, err)
			}
			c.wantConfirmed("worker-b", "10.77.0.192/26")
		}},
		{"at the limit: no new block, but borrowing", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "own", 1)
			c.assign("worker-a", "other", 1)
			r := c.address("worker-b", "one", "10.77.0.100")
			r.MaxBlocks = 1
			_, err := c.ipam.AssignAddress(c.ctx(), r)
			wantCode(t, err, cnierr.BlockLimit)
			r.Addr = netip.MustParseAddr("10.77.0.200")
			if _, err := c.ipam.AssignAddress(c.ctx(), r); err != nil {
				t.Error(err)
			}
		}},
		{"where a block of another size lies", func(t *testing.T, c *cluster) {
			c.p26()
			c.fullBlock("worker-a", netip.MustParsePrefix("10.77.0.64/28"))
			_, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.100"))
			wantText(t, err, "overlaps a block of another size")
			c.fullBlock("worker-a", netip.MustParsePrefix("10.77.0.128/25"))
			_, err = c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.200"))
			wantText(t, err, "overlaps a block of another size")
		}},
		{"two families on one handle", func(t *testing.T, c *cluster) {
			c.p26()
			c.pool("pods-v6", "fd00:77:1::/112", 122)
			for _, addr := range []string{"10.77.0.9", "fd00:77:1::9"} {
				if _, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", addr)); err != nil {
					t.Error(err)
				}
			}
			if got, err := c.ipam.AddressesByHandle(c.ctx(), "k8s-pod-network.one"); err != nil || len(got) != 2 {
				t.Errorf("%v, %v", got, err)
			}
			c.release("one")
			if _, err := c.ipam.AddressesByHandle(c.ctx(), "k8s-pod-network.one"); !errors.Is(err, datastore.ErrNotFound) {
				t.Error(err)
			}
		}},
	})
}

// TestUnreadableBlocks: a block that makes no sense keeps nobody from the
// others, but is never taken for missing.
func TestUnreadableBlocks(t *testing.T) {
	t.Parallel()
	corrupt := func(c *cluster, cidr string) {
		c.plant(model.BlockKey{CIDR: netip.MustParsePrefix(cidr)}, `{"cidr":"`+cidr+`","allocations":[7]}`)
	}
	mend := func(c *cluster, cidr string) {
		c.store.Uproot(model.BlockKey{CIDR: netip.MustParsePrefix(cidr)}.Path())
		c.fullBlock("worker-c", netip.MustParsePrefix(cidr))
	}
	runScenarios(t, []scenario{
		{"own block", func(t *testing.T, c *cluster) {
			c.p26()
			corrupt(c, "10.77.0.0/26")
			c.plantAffinity("worker-b", "10.77.0.0/26", `{"state":"pending"}`)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.64/26")
			c.want(c.assign("worker-b", "two", 1), "10.77.0.65/26")
			mend(c, "10.77.0.0/26")
		}},
		{"own block, with another's document", func(t *testing.T, c *cluster) {
			c.p26()
			other := model.NewBlock(netip.MustParsePrefix("10.88.0.0/26"), "host:worker-b", c.clock.Now(), nil)
			c.put(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}, other)
			c.plantAffinity("worker-b", "10.77.0.0/26", `{"state":"pending"}`)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.64/26")
			mend(c, "10.77.0.0/26")
		}},
		{"in the walk", func(t *testing.T, c *cluster) {
			c.p26()
			corrupt(c, "10.77.0.0/26")
			c.assign("worker-a", "other", 1)
			c.fullBlock("worker-c", netip.MustParsePrefix("10.77.0.64/26"))
			c.fullBlock("worker-c", netip.MustParsePrefix("10.77.0.128/26"))
			c.want(c.assign("worker-b", "one", 1), "10.77.0.193/26")
			mend(c, "10.77.0.0/26")
		}},
		{"release fails", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			corrupt(c, "10.77.0.0/26")
			if err := c.ipam.ReleaseByHandle(c.ctx(), "k8s-pod-network.one"); err == nil || c.handle("one") == nil {
				t.Errorf("%v, or the handle is gone", err)
			}
			mend(c, "10.77.0.0/26")
			c.release("one")
			c.store.Uproot(c.affinityPath("worker-b", "10.77.0.0/26"))
		}},
	})
}
