package ipam

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func TestConformanceRelease(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{"IPAM/23 handle written, block not; DEL", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "other", 1)
			c.plant(model.HandleKey{ID: "k8s-pod-network.dead"}, `{"block":{"10.77.0.0/26":1,"10.77.0.64/26":1},"deleted":false}`)
			c.release("dead")
			if c.handle("dead") != nil {
				t.Error("the handle is left")
			}
		}},
		{"IPAM/24 release twice", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.release("one")
			c.release("one")
		}},
		{"IPAM/25 no handle at all", func(t *testing.T, c *cluster) {
			c.p26()
			if err := c.ipam.ReleaseByHandle(c.ctx(), "k8s-pod-network.none", "shop.none"); err != nil {
				t.Error(err)
			}
		}},
		{"IPAM/26 legacy handle", func(t *testing.T, c *cluster) {
			c.p26()
			r := c.request("worker-b", "one", 1)
			r.HandleID = "shop.web-0"
			if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
				t.Fatal(err)
			}
			if err := c.ipam.ReleaseByHandle(c.ctx(), "k8s-pod-network.one", "shop.web-0"); err != nil {
				t.Fatal(err)
			}
			if !c.block("10.77.0.0/26").Empty() {
				t.Error("the address is left")
			}
		}},
		{"IPAM/27 pool deleted", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.store.Uproot(model.ResourceKey{Kind: model.KindIPPool, Name: "pods"}.Path())
			if err := c.ipam.ReleasePoolAffinities(c.ctx(), netip.MustParsePrefix("10.77.0.0/24")); err != nil {
				t.Fatal(err)
			}
			if block := c.block("10.77.0.0/26"); block == nil || block.Affinity != "" {
				t.Fatalf("block %+v", block)
			}
			c.release("one")
			if c.block("10.77.0.0/26") != nil {
				t.Error("the ownerless empty block is left")
			}
		}},
		{"IPAM/28 pool disabled", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.p26(`"disabled":true`)
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "two", 1))
			wantText(t, err, "cannot find a qualified ippool", "pool pods (10.77.0.0/24): disabled")
			c.release("one")
		}},
		{"IPAM/29 wrong sequence number", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			before := c.store.Dump()
			wrong := uint64(1)
			_, _, err := c.ipam.ReleaseAddresses(c.ctx(), []Release{{Addr: netip.MustParseAddr("10.77.0.0"), Sequence: &wrong}})
			if !errors.Is(err, datastore.ErrConflict) || c.store.Dump() != before {
				t.Errorf("%v, or the block changed", err)
			}
		}},
		{"IPAM/30 wrong handle", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			before := c.store.Dump()
			_, _, err := c.ipam.ReleaseAddresses(c.ctx(), []Release{{Addr: netip.MustParseAddr("10.77.0.0"), HandleID: "other"}})
			if !errors.Is(err, datastore.ErrConflict) || c.store.Dump() != before {
				t.Errorf("%v, or the block changed", err)
			}
		}},
		{"IPAM/31 release of a free address", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			before := c.store.Dump()
			for _, addr := range []string{"10.77.0.1", "10.77.0.200", "192.0.2.1"} {
				free, _, err := c.ipam.ReleaseAddresses(c.ctx(), []Release{{Addr: netip.MustParseAddr(addr)}})
				if err != nil || len(free) != 1 || c.store.Dump() != before {
					t.Errorf("%s: unallocated %v, %v", addr, free, err)
				}
			}
		}},
		{"IPAM/32 the same address twice", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 2)
			r := Release{Addr: netip.MustParseAddr("10.77.0.0"), HandleID: "k8s-pod-network.one"}
			sequence := c.block("10.77.0.0/26").SequenceForAllocation[0]
			r.Sequence = &sequence
			free, done, err := c.ipam.ReleaseAddresses(c.ctx(), []Release{r, r})
			if err != nil || len(free) != 0 || len(done) != 2 {
				t.Errorf("unallocated %v, done %v, %v", free, done, err)
			}
			if count := c.handle("one").Blocks[netip.MustParsePrefix("10.77.0.0/26")]; count != 1 {
				t.Errorf("handle counts %d", count)
			}
		}},
		{"IPAM/33 cooldown", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.0.0/30", 30)
			c.config(`{"auto_allocate_blocks":true,"ipCooldownSeconds":30}`)
			c.assign("worker-b", "fill", 3)
			c.assign("worker-b", "one", 1)
			c.release("one")
			c.wantShort("worker-b", 1, 0)
			raw, _ := c.store.Raw(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/30")}.Path())
			wantContains(t, raw, `{"releasedAt":"2026-03-04T05:06:07Z"}`)
			c.clock.advance(31 * time.Second)
			c.want(c.assign("worker-b", "two", 1), "10.77.0.3/30")
		}},
		{"IPAM/34 release of a cooling address", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(`{"auto_allocate_blocks":true,"ipCooldownSeconds":30}`)
			c.assign("worker-b", "one", 1)
			c.release("one")
			free, _, err := c.ipam.ReleaseAddresses(c.ctx(), []Release{{Addr: netip.MustParseAddr("10.77.0.0")}})
			if err != nil || len(free) != 1 {
				t.Errorf("unallocated %v, %v", free, err)
			}
		}},
		{"IPAM/66 handle counts too much", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.plant(model.HandleKey{ID: "k8s-pod-network.one"}, `{"block":{"10.77.0.0/26":2},"deleted":false}`)
			c.release("one")
			if c.handle("one") != nil || !c.block("10.77.0.0/26").Empty() {
				t.Error("address or handle left")
			}
		}},
	})
}
