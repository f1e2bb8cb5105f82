package ipam

import (
	"fmt"
	"net/netip"
	"testing"

	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	c.pool("v6", "fd00::/64", 122)
	c.reserve("10.77.0.0/30", "10.77.0.64/30", "fd00::/65")
	c.config(strictConfig)
	r := c.request("worker-b", "one", 2)
	r.Reserve = WindowsReservation()
	if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
		t.Fatal(err)
	}
	orphan := model.NewBlock(netip.MustParsePrefix("192.0.2.0/28"), "host:worker-a", c.clock.Now(), nil)
	orphan.Allocate(1, model.Attribute{HandleID: "h", Owner: map[string]string{"node": "worker-b", "pod": "web-0", "namespace": "shop"}}, nil)
	orphan.Allocate(1, model.Attribute{HandleID: "g"}, nil)
	c.put(model.BlockKey{CIDR: orphan.CIDR}, orphan)

	u, err := c.ipam.Usage(c.ctx())
	if err != nil || len(u.Pools) != 2 {
		t.Fatalf("%+v, %v", u, err)
	}
	text := func(p PoolUsage) string {
		return fmt.Sprintf("%s: %s, %s, %s, %s", p.Name, p.Total, p.InUse, p.Reserved, p.Free)
	}
	// In use: 4 of Windows and 2; of the 8 reserved, 3 are in use by Windows.
	if got := text(u.Pools[0]); got != "pods: 256, 6, 8, 245" {
		t.Error(got)
	}
	if got := text(u.Pools[1]); got != "v6: 18446744073709551616, 0, 9223372036854775808, 9223372036854775808" {
		t.Error(got)
	}
	if got := u.Pools[0].Blocks; len(got) != 1 || got[0] != (BlockUsage{netip.MustParsePrefix("10.77.0.0/26"), "host:worker-b", 64, 6, 4, 57}) {
		t.Errorf("%+v", got)
	}
	if len(u.Orphans) != 1 || u.Orphans[0].InUse != 2 {
		t.Errorf("%+v", u.Orphans)
	}
	want := Borrowed{netip.MustParseAddr("192.0.2.0"), "worker-b", orphan.CIDR, "host:worker-a", "pod", "shop/web-0"}
	if len(u.Borrowed) != 1 || u.Borrowed[0] != want || u.WithoutNode != 1 {
		t.Errorf("%+v, without node %d", u.Borrowed, u.WithoutNode)
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.assign("worker-b", "one", 1)
		found, err := c.ipam.Lookup(c.ctx(), netip.MustParseAddr("10.77.0.0"))
		if err != nil || found == nil || found.HandleID != "k8s-pod-network.one" || found.Attributes["node"] != "worker-b" {
			t.Errorf("%+v, %v", found, err)
		}
		c.store.Uproot(model.ResourceKey{Kind: model.KindIPPool, Name: "pods"}.Path())
		if found, err = c.ipam.Lookup(c.ctx(), netip.MustParseAddr("10.77.0.0")); err != nil || found == nil {
			t.Errorf("outside all pools: %+v, %v", found, err)
		}
		for _, addr := range []string{"10.77.0.1", "192.0.2.1"} {
			if found, err = c.ipam.Lookup(c.ctx(), netip.MustParseAddr(addr)); err != nil || found != nil {
				t.Errorf("%s: %+v, %v", addr, found, err)
			}
		}
	})
}
