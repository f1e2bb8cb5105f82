package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

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
