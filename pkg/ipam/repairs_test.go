package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

const coolingConfig = `{"auto_allocate_blocks":true,"ipCooldownSeconds":600}`

// TestAffinityReleaseAndCooldown: an address that cools down makes its block
// non-empty for whoever gives the block up, and goes on cooling (IPAM contract
// 1, 2.2).
func TestAffinityReleaseAndCooldown(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]func(c *cluster) error{
		"host": func(c *cluster) error { return c.ipam.RemoveHost(c.ctx(), "worker-b") },
		"cidr": func(c *cluster) error {
			return c.ipam.ReleaseAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/24"), "worker-b", false)
		},
		"pool": func(c *cluster) error {
			return c.ipam.ReleasePoolAffinities(c.ctx(), netip.MustParsePrefix("10.77.0.0/24"))
		},
		"block": func(c *cluster) error {
			err := c.ipam.ReleaseBlockAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/26"), true)
			if !errors.Is(err, ErrBlockNotEmpty) {
				return fmt.Errorf("a block with a cooling address counts as empty: %w", err)
			}
			return c.ipam.ReleaseBlockAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/26"), false)
		},
	} {
		t.Run("IPAM/33 "+name, func(t *testing.T) {
			t.Parallel()
			forBothKinds(t, func(t *testing.T, c *cluster) {
				c.p26()
				c.config(coolingConfig)
				c.assign("worker-b", "one", 1)
				c.release("one")
				if err := release(c); err != nil {
					t.Fatal(err)
				}
				block := c.block("10.77.0.0/26")
				if block == nil || block.Affinity != "" || block.HolderOf(0) == nil {
					t.Fatalf("block %+v, want one without owner whose first address cools down", block)
				}
			})
		})
	}
}

// TestClaimAndCooldown: confirming a claim rewrites the block, in which a
// released address goes on cooling.
func TestClaimAndCooldown(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.config(coolingConfig)
		c.assign("worker-b", "one", 1)
		c.release("one")
		c.plantAffinity("worker-b", "10.77.0.0/26", `{"state":"pending"}`)
		if _, _, err := c.ipam.ClaimAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/26"), "worker-b"); err != nil {
			t.Fatal(err)
		}
		c.wantConfirmed("worker-b", "10.77.0.0/26")
		if c.block("10.77.0.0/26").HolderOf(0) == nil {
			t.Error("the address has not cooled down")
		}
	})
}

// TestHandleWithUnreadableBlock: the addresses in the other blocks are told
// (IPAM contract 6, IPsByHandle).
func TestHandleWithUnreadableBlock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	c.assign("worker-b", "one", 65)
	c.plant(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}, `{`)
	found, err := c.ipam.AddressesByHandle(c.ctx(), "k8s-pod-network.one")
	if err != nil || len(found) != 1 || found[0] != netip.MustParseAddr("10.77.0.64") {
		t.Errorf("%v, %v", found, err)
	}
}

// TestRemoveHostMarker: the marker that old releases wrote goes with the host,
// and only that host's (IPAM contract 6, RemoveIPAMHost).
func TestRemoveHostMarker(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	c.assign("worker-b", "one", 1)
	const root = "/calico/ipam/v2/host/"
	c.store.Plant(root+"worker-b", "")
	c.store.Plant(root+"worker-bb", "")
	for range 2 {
		if err := c.ipam.RemoveHost(c.ctx(), "worker-b"); err != nil {
			t.Fatal(err)
		}
		if got := c.count(root + "worker-b"); got != 1 {
			t.Errorf("%d keys under %sworker-b, want the one of worker-bb", got, root)
		}
	}
}

// TestRefusedAndUnwritten: a request that gets less than it wants, because of
// a limit, and whose write fails has nothing.
func TestRefusedAndUnwritten(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if writes(call, model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}) {
				return memory.Down(call)
			}
			return nil
		}})
		r := c.request("worker-b", "many", 65)
		r.MaxBlocks = 1
		result, err := c.ipam.Assign(c.ctx(), r)
		if !errors.Is(err, datastore.ErrUnavailable) || len(result.IPv4.Addresses) != 0 {
			t.Errorf("%d addresses, %v", len(result.IPv4.Addresses), err)
		}
		if c.handle("many") != nil {
			t.Error("the handle is left")
		}
	})
}

// TestStaleBesideUnreadable: a block that cannot be read keeps GC from that
// block only, and is reported.
func TestStaleBesideUnreadable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	c.assign("worker-b", "full", 64)
	c.assign("worker-b", "one", 1)
	c.plant(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}, `{`)
	c.clock.advance(time.Second)
	done, err := c.ipam.ReleaseStale(c.ctx(), GCRequest{Network: "k8s-pod-network", Host: "worker-b", Before: c.clock.Now()})
	if len(done) != 1 || done[0] != "k8s-pod-network.one" {
		t.Errorf("done %v", done)
	}
	wantText(t, err, "10.77.0.0/26")
}

// TestStaleInManyBlocks: a container that holds addresses in more blocks than
// one write takes is released of all.
func TestStaleInManyBlocks(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.pool("pods", "10.77.0.0/25", 32)
		c.config(`{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":200}`)
		c.assign("worker-b", "one", 110)
		c.clock.advance(time.Second)
		_, err := c.ipam.ReleaseStale(c.ctx(), GCRequest{Network: "k8s-pod-network", Host: "worker-b", Before: c.clock.Now()})
		if err != nil {
			t.Fatal(err)
		}
		c.wantGone("k8s-pod-network.one")
	})
}

// TestHandleRemovedMeanwhile: the surplus of a handle that is gone needs no
// taking back.
func TestHandleRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{NonTransactional: true})
	c.pool("pods", "10.77.0.0/30", 30)
	c.assign("worker-b", "other", 3)
	c.beforeWriteOf("10.77.0.0/30", func() {
		rival := c.competitor()
		rival.assign("worker-b", "rival", 1)
		rival.release("one")
	})
	result, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
	if err != nil {
		t.Fatal(err)
	}
	wantContains(t, result.IPv4.Short, "Assigned 0 out of 1")
	verifyConsistent(t, c.store)
}

// TestUnreadableLargerBlock: a larger block that cannot be read only shows in
// the claim's guards; its range is passed over.
func TestUnreadableLargerBlock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.pool("pods", "10.77.0.0/21", 26)
	for _, cidr := range []string{"10.77.0.0/22", "10.77.4.0/23"} {
		c.plant(model.BlockKey{CIDR: netip.MustParsePrefix(cidr)}, `{`)
	}
	got := c.assign("worker-b", "one", 1)
	if !netip.MustParsePrefix("10.77.6.0/23").Contains(got[0].Addr()) {
		t.Errorf("got %v", got)
	}
}

// TestHandleTooLow: a handle that counts less than a block holds for it, or is
// gone, counts right after the next ADD of the container.
func TestHandleTooLow(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.assign("worker-b", "one", 2)
		c.assign("worker-b", "two", 1)
		c.store.Uproot(model.HandleKey{ID: "k8s-pod-network.one"}.Path())
		c.plant(model.HandleKey{ID: "k8s-pod-network.two"}, `{"block":{"10.77.0.0/26":-4}}`)
		c.assign("worker-b", "one", 1)
		c.assign("worker-b", "two", 1)
	})
}

// TestReleaseUnderTooLowHandle: releasing one address must not make a handle
// forget a block that still holds another.
func TestReleaseUnderTooLowHandle(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.assign("worker-b", "one", 3)
		c.plant(model.HandleKey{ID: "k8s-pod-network.one"}, `{"block":{"10.77.0.0/26":1}}`)
		if _, _, err := c.ipam.ReleaseAddresses(c.ctx(), []Release{{Addr: netip.MustParseAddr("10.77.0.0")}}); err != nil {
			t.Fatal(err)
		}
	})
}

// limitRequests makes the datastore refuse writes that a server with default
// settings refuses.
func limitRequests(c *cluster) {
	const most = 3 << 19 // 1.5 MiB
	c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		size := 0
		for _, step := range call.Steps {
			for _, mutation := range step {
				if body, err := model.Encode(mutation.Key, mutation.Value); err == nil {
					size += len(body)
				}
			}
		}
		if size > most {
			return &datastore.UnavailableError{Doing: "writing", Err: fmt.Errorf("request is too large: %d bytes", size)}
		}
		return nil
	}})
}

// largeBlock plants a block of 4096 addresses, all but one in use, each by
// another pod.
func (c *cluster) largeBlock(cidr netip.Prefix) {
	block := model.NewBlock(cidr, "host:worker-b", c.clock.Now(), nil)
	last := block.Size() - 1
	block.Unallocated = []int{last}
	for i := range last {
		block.Allocations[i] = i
		block.SequenceForAllocation[i] = block.SequenceNumber
		block.Attributes = append(block.Attributes, model.Attribute{
			HandleID: fmt.Sprintf("k8s-pod-network.%064d", i),
			Owner: map[string]string{
				"node": "worker-b", "namespace": "shop", "pod": "cart-5d78c9869d-abcde", "timestamp": FormatTimestamp(c.clock.Now()),
			},
		})
	}
	c.put(model.BlockKey{CIDR: cidr}, block)
	c.plantAffinity("worker-b", cidr.String(), `{"state":"confirmed","deleted":false}`)
}

// TestWeight: the estimate is never below what is written, nor far above.
func TestWeight(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	full := netip.MustParsePrefix("10.77.0.0/20")
	c.largeBlock(full)
	empty := model.NewBlock(full, "host:worker-b", c.clock.Now(), nil)
	for _, block := range []*model.Block{empty, c.block(full.String())} {
		body, err := model.Encode(model.BlockKey{CIDR: full}, block)
		if got := weight(block); err != nil || got < len(body) || got > 2*len(body) {
			t.Errorf("%d bytes are estimated to be %d, %v", len(body), got, err)
		}
	}
}

// TestRequestsStaySmall: two large and almost full blocks are each written by
// a request of its own.
func TestRequestsStaySmall(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.pool("four", "10.77.0.0/20", 20)
	c.pool("six", "fd00::/116", 116)
	c.largeBlock(netip.MustParsePrefix("10.77.0.0/20"))
	c.largeBlock(netip.MustParsePrefix("fd00::/116"))
	limitRequests(c)
	r := c.request("worker-b", "one", 1)
	r.Count6 = 1
	result, err := c.ipam.Assign(c.ctx(), r)
	if err == nil {
		err = result.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	if handle := c.handle("one"); len(handle.Blocks) != 2 {
		t.Errorf("handle %+v", handle)
	}
	c.release("one")
	c.wantGone("k8s-pod-network.one")
}

// TestShortAfterLargeBlock: one family is written before the other turns out
// to be full; then it is given back.
func TestShortAfterLargeBlock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.pool("four", "10.77.0.0/20", 20)
	c.pool("six", "fd00::/128", 128)
	c.largeBlock(netip.MustParsePrefix("10.77.0.0/20"))
	c.fullBlock("worker-a", netip.MustParsePrefix("fd00::/128"))
	r := c.request("worker-b", "one", 1)
	r.Count6 = 1
	_, err := c.ipam.Assign(c.ctx(), r)
	wantText(t, err, "failed to request IPv6 addresses")
	if strings.Contains(c.store.Dump(), "k8s-pod-network.one") {
		t.Error("something is left")
	}
}
