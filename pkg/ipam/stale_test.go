package ipam

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// assignTo gives one address to a handle with the given owner.
func (c *cluster) assignTo(host, handleID string, owner map[string]string) netip.Addr {
	c.Helper()
	r := c.request(host, "", 1)
	r.HandleID = handleID
	for key, value := range owner {
		r.Attributes[key] = value
	}
	result, err := c.ipam.Assign(c.ctx(), r)
	if err != nil || len(result.IPv4.Addresses) != 1 {
		c.Fatalf("%+v, %v", result, err)
	}
	return result.IPv4.Addresses[0].Addr()
}

func TestReleaseStale(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.assign("worker-b", "valid", 1)
		c.assign("worker-b", "stale", 2)
		kept := []string{
			"k8s-pod-network.valid",
			"k8s-pod-network.vmi.shop.vm1", // a VM, or network k8s-pod-network.vmi
			"other.stale",
			"vxlan-tunnel-addr-worker-b",
			"k8s-pod-network.elsewhere",
			"k8s-pod-network.tunnel",
			"k8s-pod-network.undated",
			"k8s-pod-network.new",
		}
		c.assignTo("worker-b", kept[1], nil)
		c.assignTo("worker-b", kept[2], nil)
		c.assignTo("worker-b", kept[3], nil)
		c.assignTo("worker-b", kept[4], map[string]string{"node": "worker-a"})
		c.assignTo("worker-b", kept[5], map[string]string{"type": "ipipTunnelAddress"})
		c.assignTo("worker-b", kept[6], map[string]string{"timestamp": "once"})
		c.plant(model.HandleKey{ID: "k8s-pod-network.dead"}, `{"block":{"10.77.0.0/26":1},"deleted":false}`)
		c.clock.advance(time.Minute)
		start := c.clock.Now()
		c.assignTo("worker-b", kept[7], nil)

		r := GCRequest{
			Network: "k8s-pod-network", Host: "worker-b", Before: start, ValidContainers: map[string]bool{"valid": true},
			NoteIDs: []string{"k8s-pod-network.dead", "k8s-pod-network.valid", "other.stale", "k8s-pod-network.vmi.shop.vm1", "k8s-pod-network.never"},
		}
		want := []string{"k8s-pod-network.dead", "k8s-pod-network.never", "k8s-pod-network.stale"}
		if ids, err := staleIDs(c, r); err != nil || !slices.Equal(ids, want) {
			t.Errorf("stale %v, %v", ids, err)
		}
		done, err := c.ipam.ReleaseStale(c.ctx(), r)
		if err != nil || !slices.Equal(done, want) {
			t.Errorf("done %v, %v", done, err)
		}
		c.wantGone("k8s-pod-network.stale")
		c.wantGone("k8s-pod-network.dead")
		for _, id := range kept {
			if addresses, err := c.ipam.AddressesByHandle(c.ctx(), id); err != nil || len(addresses) != 1 {
				t.Errorf("%s has %v, %v", id, addresses, err)
			}
		}
	})
}

// TestReleaseStaleBorrowed: a note leads to an address in another host's
// block, of which an allocation made since the start stays.
func TestReleaseStaleBorrowed(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.fillAllButOneEach("worker-a")
		c.assign("worker-b", "one", 2)
		c.clock.advance(time.Minute)
		start := c.clock.Now()
		c.assign("worker-b", "one", 1)
		_, err := c.ipam.ReleaseStale(c.ctx(), GCRequest{
			Network: "k8s-pod-network", Host: "worker-b", Before: start, NoteIDs: []string{"k8s-pod-network.one"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if left, err := c.ipam.AddressesByHandle(c.ctx(), "k8s-pod-network.one"); err != nil || len(left) != 1 {
			t.Errorf("left %v, %v", left, err)
		}
	})
}

func TestReleaseStaleGoesOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	for _, name := range []string{"a", "b", "c"} {
		c.assign("worker-b", name, 1)
	}
	c.clock.advance(time.Second)
	c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if writes(call, model.HandleKey{ID: "k8s-pod-network.b"}) {
			return memory.Down(call)
		}
		return nil
	}})
	done, err := c.ipam.ReleaseStale(c.ctx(), GCRequest{Network: "k8s-pod-network", Host: "worker-b", Before: c.clock.Now()})
	if !slices.Equal(done, []string{"k8s-pod-network.a", "k8s-pod-network.c"}) {
		t.Errorf("done %v", done)
	}
	wantText(t, err, "k8s-pod-network.b")
	if !errors.Is(err, datastore.ErrUnavailable) {
		t.Error(err)
	}
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

func staleIDs(c *cluster, r GCRequest) ([]string, error) {
	found, err := c.ipam.StaleContainers(c.ctx(), r)
	var ids []string
	for _, container := range found {
		ids = append(ids, container.HandleID)
	}
	return ids, err
}
