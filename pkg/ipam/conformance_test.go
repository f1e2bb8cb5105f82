package ipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// scenario is one row of the conformance table (IPAM contract 13).
type scenario struct {
	name string
	run  func(t *testing.T, c *cluster)
}

func runScenarios(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			forBothKinds(t, s.run)
		})
	}
}

// strictConfig turns strict affinity on.
const strictConfig = `{"strict_affinity":true,"auto_allocate_blocks":true}`

func TestConformanceAllocation(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{"IPAM/1 first address of a host", func(t *testing.T, c *cluster) {
			c.p26()
			c.want(c.assign("worker-b", "one", 1), "10.77.0.0/26")
			if state := c.affinity("worker-b", "10.77.0.0/26").State; state != model.StateConfirmed {
				t.Errorf("affinity %s", state)
			}
			if owner := c.block("10.77.0.0/26").Affinity; owner != "host:worker-b" {
				t.Errorf("owner %s", owner)
			}
			if count := c.handle("one").Blocks[netip.MustParsePrefix("10.77.0.0/26")]; count != 1 {
				t.Errorf("handle counts %d", count)
			}
		}},
		{"IPAM/2 second address comes from the same block", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.want(c.assign("worker-b", "two", 1), "10.77.0.1/26")
			if got := c.count("/calico/ipam/v2/host/"); got != 1 {
				t.Errorf("%d affinities", got)
			}
		}},
		{"IPAM/3 a released address goes to the end of the queue", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.assign("worker-b", "two", 1)
			c.release("one")
			c.want(c.assign("worker-b", "three", 1), "10.77.0.2/26")
			if queue := c.block("10.77.0.0/26").Unallocated; queue[len(queue)-1] != 0 {
				t.Errorf("queue %v", queue)
			}
		}},
		{"IPAM/4 second block when the first is full", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "fill", 64)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.64/26")
		}},
		{"IPAM/5 more than the pool has", func(t *testing.T, c *cluster) {
			c.p26()
			c.wantShort("worker-b", 257, 256, "No IPs available in pools: [10.77.0.0/24]")
		}},
		{"IPAM/6 more than the pool has, strict", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			c.wantShort("worker-b", 257, 256, "No more free affine blocks and strict affinity enabled")
		}},
		{"IPAM/7 limit of the request", func(t *testing.T, c *cluster) {
			c.p26()
			for limit, host := range map[int]string{1: "worker-b", 2: "worker-c"} {
				r := c.request(host, "many-"+host, 256)
				r.MaxBlocks = limit
				result, err := c.ipam.Assign(c.ctx(), r)
				wantText(t, err, "cannot allocate new block due to per host block limit")
				wantCode(t, err, cnierr.BlockLimit)
				if got := len(result.IPv4.Addresses); got != 64*limit {
					t.Errorf("limit %d: %d addresses", limit, got)
				}
				wantContains(t, result.IPv4.Short, fmt.Sprintf("limit of %d blocks reached for this node", limit))
			}
		}},
		{"IPAM/8 which limit holds", func(t *testing.T, _ *cluster) {
			for _, test := range [][3]int{{10, 4, 4}, {2, 4, 2}, {0, 0, 20}, {3, 0, 3}, {0, 5, 5}} {
				if got := blockLimit(test[0], test[1]); got != test[2] {
					t.Errorf("request %d, cluster %d: limit %d, want %d", test[0], test[1], got, test[2])
				}
			}
		}},
		{"IPAM/9 nothing is borrowed at the limit", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-a", "other", 1)
			c.assign("worker-b", "fill", 64)
			r := c.request("worker-b", "one", 1)
			r.MaxBlocks = 1
			result, err := c.ipam.Assign(c.ctx(), r)
			wantCode(t, err, cnierr.BlockLimit)
			if len(result.IPv4.Addresses) != 0 {
				t.Errorf("got %v", result.IPv4.Addresses)
			}
		}},
		{"IPAM/9 the limit hides no free address of own blocks", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(`{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":2}`)
			c.assign("worker-b", "first", 64)
			c.assign("worker-b", "second", 1)
			c.config(`{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":1}`)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.65/26")
		}},
		{"IPAM/10 borrow", func(t *testing.T, c *cluster) {
			c.p26()
			c.fillAllButOneEach("worker-a")
			got := c.assign("worker-b", "one", 1)
			if len(got) != 1 {
				t.Fatalf("got %v", got)
			}
			block := c.block(got[0].Masked().String())
			ordinal, _ := block.Ordinal(got[0].Addr())
			if node := block.HolderOf(ordinal).Owner["node"]; node != "worker-b" || block.Affinity != "host:worker-a" {
				t.Errorf("node %s, owner %s", node, block.Affinity)
			}
			if c.count("/calico/ipam/v2/host/worker-b/") != 0 {
				t.Error("worker-b has an affinity")
			}
		}},
		{"IPAM/11 no borrowing under strict affinity", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			c.fillAllButOneEach("worker-a")
			c.wantShort("worker-b", 1, 0, "Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled")
		}},
		{"IPAM/12 an empty old block is reclaimed", func(t *testing.T, c *cluster) {
			c.p26()
			c.emptyBlockOf("worker-a", "worker-c")
			c.clock.advance(2 * time.Minute)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.192/26")
			if owner := c.block("10.77.0.192/26").Affinity; owner != "host:worker-b" {
				t.Errorf("owner %s", owner)
			}
			if c.affinity("worker-a", "10.77.0.192/26") != nil {
				t.Error("worker-a still has its affinity")
			}
		}},
		{"IPAM/13 reclaim needs 60 s", func(t *testing.T, c *cluster) {
			c.p26()
			c.emptyBlockOf("worker-a", "worker-c")
			c.clock.advance(10 * time.Second)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.193/26")
			if owner := c.block("10.77.0.192/26").Affinity; owner != "host:worker-a" {
				t.Errorf("owner %s", owner)
			}
		}},
		{"IPAM/14 no automatic allocation of blocks", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(`{"strict_affinity":true}`)
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
			wantText(t, err, "failed to find or claim a block")
		}},
		{"IPAM/22 block update conflicts once", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "first", 1)
			c.beforeWriteOf("10.77.0.0/26", func() { c.competitor().assign("worker-b", "rival", 1) })
			c.want(c.assign("worker-b", "one", 1), "10.77.0.2/26")
			if count := c.handle("one").Blocks[netip.MustParsePrefix("10.77.0.0/26")]; count != 1 {
				t.Errorf("handle counts %d", count)
			}
		}},
		{"IPAM/51 node unknown", func(t *testing.T, c *cluster) {
			c.p26()
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-x", "one", 1))
			wantCode(t, err, cnierr.NodeUnknown)
			wantText(t, err, "resource does not exist", "Node", "worker-x")
		}},
		{"IPAM/70 answer lost", func(t *testing.T, c *cluster) {
			c.p26()
			lost := false
			c.store.SetHooks(memory.Hooks{After: func(_ context.Context, call memory.Call) error {
				if lost || !writes(call, model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}) {
					return nil
				}
				lost = true
				return memory.LoseAnswer(call)
			}})
			c.want(c.assign("worker-b", "one", 1), "10.77.0.0/26")
			if got := c.count("/calico/ipam/v2/assignment/"); got != 1 || !lost {
				t.Errorf("%d blocks, answer lost %v", got, lost)
			}
			if count := c.handle("one").Blocks[netip.MustParsePrefix("10.77.0.0/26")]; count != 1 {
				t.Errorf("handle counts %d", count)
			}
		}},
	})
}

func TestConformanceAffinities(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{"IPAM/15 pending affinity without block", func(t *testing.T, c *cluster) {
			c.p26()
			c.plantAffinity("worker-b", "10.77.0.128/26", `{"state":"pending","deleted":false}`)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.128/26")
			c.wantConfirmed("worker-b", "10.77.0.128/26")
		}},
		{"IPAM/15 confirmed affinity without block", func(t *testing.T, c *cluster) {
			c.p26()
			c.plantAffinity("worker-b", "10.77.0.128/26", `{"state":"confirmed","deleted":false}`)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.128/26")
			c.wantConfirmed("worker-b", "10.77.0.128/26")
		}},
		{"IPAM/16 affinity taken back from pendingDeletion", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.plantAffinity("worker-b", "10.77.0.0/26", `{"state":"pendingDeletion","deleted":false}`)
			before := c.block("10.77.0.0/26").SequenceNumber
			c.want(c.assign("worker-b", "two", 1), "10.77.0.1/26")
			c.wantConfirmed("worker-b", "10.77.0.0/26")
			if c.block("10.77.0.0/26").SequenceNumber == before {
				t.Error("the block was not rewritten")
			}
		}},
		{"IPAM/17 affinity for another host's block", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-a", "other", 1)
			c.plantAffinity("worker-b", "10.77.0.192/26", `{"state":"confirmed","deleted":false}`)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.0/26")
			if c.affinity("worker-b", "10.77.0.192/26") != nil {
				t.Error("the stale affinity is still there")
			}
		}},
		{"IPAM/18 affinity with an empty value", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.plantAffinity("worker-b", "10.77.0.0/26", "")
			c.want(c.assign("worker-b", "two", 1), "10.77.0.1/26")
			if raw, _ := c.store.Raw(c.affinityPath("worker-b", "10.77.0.0/26")); raw != "" {
				t.Errorf("the affinity was rewritten: %s", raw)
			}
		}},
		{"IPAM/20 another host creates the block first", func(t *testing.T, c *cluster) {
			c.p26()
			c.beforeWriteOf("10.77.0.0/26", func() {
				r := c.request("worker-a", "rival", 1)
				err := claimFor(c, "worker-a", "10.77.0.0/26", r)
				if err != nil {
					t.Error(err)
				}
			})
			c.want(c.assign("worker-b", "one", 1), "10.77.0.64/26")
			if c.affinity("worker-b", "10.77.0.0/26") != nil {
				t.Error("worker-b kept an affinity for the block it lost")
			}
		}},
		{"IPAM/46 node no longer selected, last address released", func(t *testing.T, c *cluster) {
			c.p26(`"nodeSelector":"!has(gone)"`)
			c.assign("worker-b", "one", 1)
			c.node("worker-b", map[string]string{"gone": "yes"})
			c.release("one")
			if c.block("10.77.0.0/26") != nil || c.affinity("worker-b", "10.77.0.0/26") != nil {
				t.Error("block or affinity left")
			}
		}},
		{"IPAM/47 node no longer selected, addresses left", func(t *testing.T, c *cluster) {
			c.p26(`"nodeSelector":"!has(gone)"`)
			c.pool("spare", "10.78.0.0/24", 26)
			c.assign("worker-b", "one", 1)
			c.assign("worker-b", "two", 1)
			c.node("worker-b", map[string]string{"gone": "yes"})
			c.release("one")
			if c.block("10.77.0.0/26") == nil {
				t.Fatal("the block is gone")
			}
			c.want(c.assign("worker-b", "three", 1), "10.78.0.0/26")
			if c.block("10.77.0.0/26") == nil {
				t.Fatal("the block is gone")
			}
			c.release("two")
			if c.block("10.77.0.0/26") != nil {
				t.Error("the block is left")
			}
		}},
		{"IPAM/67 a smaller block overlaps", func(t *testing.T, c *cluster) {
			c.p26()
			c.put(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.16/28")},
				model.NewBlock(netip.MustParsePrefix("10.77.0.16/28"), "host:worker-a", c.clock.Now(), nil))
			c.want(c.assign("worker-b", "one", 1), "10.77.0.64/26")
		}},
		{"IPAM/68 a larger block overlaps", func(t *testing.T, c *cluster) {
			c.p26()
			c.put(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/25")},
				model.NewBlock(netip.MustParsePrefix("10.77.0.0/25"), "host:worker-a", c.clock.Now(), nil))
			c.want(c.assign("worker-b", "one", 1), "10.77.0.128/26")
		}},
		{"IPAM/68 a larger block that begins elsewhere", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.1.0/24", 26)
			c.pool("spare", "10.78.0.0/24", 26)
			c.put(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/22")},
				model.NewBlock(netip.MustParsePrefix("10.77.0.0/22"), "host:worker-a", c.clock.Now(), nil))
			c.want(c.assign("worker-b", "one", 1), "10.78.0.0/26")
		}},
		{"own block of another size serves no ADD and leaves when empty", func(t *testing.T, c *cluster) {
			c.p26()
			cidr := netip.MustParsePrefix("10.77.0.16/28")
			c.put(model.BlockKey{CIDR: cidr}, model.NewBlock(cidr, "host:worker-b", c.clock.Now(), nil))
			c.plantAffinity("worker-b", cidr.String(), `{"state":"confirmed","deleted":false}`)
			c.assign("worker-b", "one", 1)
			if c.block(cidr.String()) != nil || c.affinity("worker-b", cidr.String()) != nil {
				t.Error("the misfit is left")
			}
		}},
		{"a block of ours without affinity is used", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.0.0/26", 26)
			c.assign("worker-b", "one", 1)
			c.store.Uproot(c.affinityPath("worker-b", "10.77.0.0/26"))
			c.want(c.assign("worker-b", "two", 1), "10.77.0.1/26")
			c.wantConfirmed("worker-b", "10.77.0.0/26")
		}},
	})
}

// TestConformanceLastBlock is row 69: the last free block of a large pool is
// found without reading any block.
func TestConformanceLastBlock(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{{"IPAM/69 last block of a large pool", func(t *testing.T, c *cluster) {
		c.pool("pods", "10.77.0.0/16", 26)
		blocks := blockRange{netip.MustParsePrefix("10.77.0.0/16"), 26}
		const last = 300
		for i := range 1024 {
			if i != last {
				c.fullBlock("worker-a", blocks.at(newUint128(i)))
			}
		}
		c.want(c.assign("worker-b", "one", 1), blocks.at(newUint128(last)).Addr().String()+"/26")
		lists := 0
		for _, call := range c.store.Calls() {
			for _, query := range call.Queries {
				list, ok := query.(datastore.ListBlocks)
				if ok && !list.KeysOnly {
					t.Errorf("values were listed: %s", call)
				}
				if ok && list.TextPrefix == "" {
					lists++
				}
			}
		}
		if lists > 1 {
			t.Errorf("%d lists", lists)
		}
	}}})
}

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

func TestConformanceSelection(t *testing.T) {
	t.Parallel()
	requestPool := func(c *cluster, cidr string) (Result, error) {
		r := c.request("worker-b", "one", 1)
		r.Pools4 = []netip.Prefix{netip.MustParsePrefix(cidr)}
		return c.ipam.Assign(c.ctx(), r)
	}
	runScenarios(t, []scenario{
		{"IPAM/35 reservation of one address", func(t *testing.T, c *cluster) {
			c.p26()
			c.reserve(" 10.77.0.0/32", "nonsense")
			c.wantShort("worker-b", 256, 255, "No IPs available")
			c.release("many")
			got, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "two", "10.77.0.0"))
			if err != nil || got.String() != "10.77.0.0/26" {
				t.Errorf("%s, %v", got, err)
			}
		}},
		{"IPAM/36 reservation of a whole block", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "early", 1)
			c.reserve("10.77.0.0/27", "10.77.0.32/27", "10.77.0.128/26")
			c.assign("worker-a", "other", 1)
			result, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "many", 256))
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range result.IPv4.Addresses {
				if ordinal := got.Addr().As4()[3] / 64; ordinal == 0 || ordinal == 2 {
					t.Errorf("%s is reserved", got)
				}
			}
			if len(result.IPv4.Addresses) != 127 {
				t.Errorf("%d addresses", len(result.IPv4.Addresses))
			}
		}},
		{"IPAM/37 node selectors", func(t *testing.T, c *cluster) {
			for selector, matches := range map[string]bool{`zone == \"a\"`: false, `!has(zone)`: true, `zone != \"a\"`: true} {
				c.p26(`"nodeSelector":"` + selector + `"`)
				_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
				if matches && err != nil {
					t.Errorf("%s: %v", selector, err)
				}
				if !matches {
					wantCode(t, err, cnierr.NoPool)
					wantText(t, err, "no configured Calico pools for node worker-b", "does not select node worker-b")
				}
			}
		}},
		{"IPAM/38 requested pool that excludes the node", func(t *testing.T, c *cluster) {
			c.p26(`"nodeSelector":"zone == \"a\""`)
			result, err := requestPool(c, "10.77.0.0/24")
			if err != nil {
				t.Fatal(err)
			}
			c.want(result.IPv4.Addresses, "10.77.0.0/26")
		}},
		{"IPAM/39 manual pool", func(t *testing.T, c *cluster) {
			c.p26(`"assignmentMode":"Manual"`)
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
			wantText(t, err, "no configured Calico pools for node worker-b")
			if _, err := requestPool(c, "10.77.0.0/24"); err != nil {
				t.Error(err)
			}
		}},
		{"IPAM/40 requested part of a pool", func(t *testing.T, c *cluster) {
			c.p26()
			_, err := requestPool(c, "10.77.0.0/25")
			wantText(t, err, "the given pool (10.77.0.0/25) does not exist, or is not enabled")
		}},
		{"IPAM/41 pool for tunnels", func(t *testing.T, c *cluster) {
			c.p26(`"allowedUses":["Tunnel"]`)
			const want = "cannot find a qualified ippool, no pools match the required use (Workload)"
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
			wantText(t, err, want)
			_, err = requestPool(c, "10.77.0.0/24")
			wantText(t, err, want)
		}},
		{"IPAM/42 requested address in a pool for tunnels", func(t *testing.T, c *cluster) {
			c.p26(`"allowedUses":["Tunnel"]`)
			_, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.9"))
			wantText(t, err, `IP address 10.77.0.9 is in IP pool "pods", which is not allowed for use "Workload" (allowedUses: [Tunnel])`)
		}},
		{"IPAM/43 requested address outside the pools", func(t *testing.T, c *cluster) {
			c.p26()
			c.pool("off", "10.79.0.0/24", 26, `"disabled":true`)
			for _, addr := range []string{"10.78.0.1", "10.79.0.1"} {
				_, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", addr))
				wantText(t, err, "The provided IP address is not in a configured pool")
				wantCode(t, err, cnierr.AddressOutsidePools)
			}
		}},
		{"IPAM/44 requested address in another host's block", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-a", "other", 1)
			c.config(strictConfig)
			_, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.200"))
			wantText(t, err, "Block host affinity does not match")
			c.config(`{"auto_allocate_blocks":true}`)
			if _, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.200")); err != nil {
				t.Error(err)
			}
			if c.block("10.77.0.192/26").Affinity != "host:worker-a" {
				t.Error("the owner changed")
			}
		}},
		{"IPAM/45 namespace selector", func(t *testing.T, c *cluster) {
			c.p26(`"namespaceSelector":"team == \"x\""`)
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
			wantText(t, err, "no configured Calico pools for node worker-b", "does not select the namespace")
			r := c.request("worker-b", "one", 1)
			r.NamespaceLabels = map[string]string{"team": "x"}
			if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
				t.Error(err)
			}
		}},
		{"IPAM/48 dual stack, IPv6 exhausted", func(t *testing.T, c *cluster) {
			c.p26()
			c.pool("pods-v6", "fd00::1/128", 128)
			both := c.request("worker-b", "one", 1)
			both.Count6 = 1
			result, err := c.ipam.Assign(c.ctx(), both)
			if err != nil {
				t.Fatal(err)
			}
			c.want(result.IPv4.Addresses, "10.77.0.0/26")
			c.want(result.IPv6.Addresses, "fd00::1/128")
			before := c.store.Dump()
			both.HandleID = "k8s-pod-network.two"
			result, err = c.ipam.Assign(c.ctx(), both)
			wantText(t, err, "failed to request IPv6 addresses: Assigned 0 out of 1 requested IPv6 addresses; No IPs available in pools: [fd00::1/128]")
			wantCode(t, err, cnierr.AddressesExhausted)
			if len(result.IPv4.Addresses)+len(result.IPv6.Addresses) != 0 || c.store.Dump() != before {
				t.Error("an address was kept")
			}
		}},
	})
}

func TestConformanceWindows(t *testing.T) {
	t.Parallel()
	windows := func(c *cluster, count int) Request {
		r := c.request("worker-b", "one", count)
		r.Reserve, r.RequireStrictAffinity = WindowsReservation(), true
		return r
	}
	runScenarios(t, []scenario{
		{"IPAM/55 strict affinity off", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "old", 1)
			_, err := c.ipam.Assign(c.ctx(), windows(c, 1))
			wantCode(t, err, cnierr.StrictAffinityNeeded)
			wantText(t, err, "global strict affinity should not be false for Windows node")
			address := c.address("worker-b", "one", "10.77.0.9")
			address.RequireStrictAffinity = true
			_, err = c.ipam.AssignAddress(c.ctx(), address)
			wantCode(t, err, cnierr.StrictAffinityNeeded)
			c.release("old")
			c.release("unknown")
		}},
		{"IPAM/56 four addresses less per block", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			result, err := c.ipam.Assign(c.ctx(), windows(c, 256))
			if err != nil || len(result.IPv4.Addresses) != 240 {
				t.Fatalf("%d addresses, %v", len(result.IPv4.Addresses), err)
			}
			for _, got := range result.IPv4.Addresses {
				if slices.Contains([]byte{0, 1, 2, 63}, got.Addr().As4()[3]%64) {
					t.Errorf("%s is Windows'", got)
				}
			}
		}},
		{"IPAM/57 one block", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			r := windows(c, 61)
			r.MaxBlocks = 1
			result, err := c.ipam.Assign(c.ctx(), r)
			wantCode(t, err, cnierr.BlockLimit)
			if len(result.IPv4.Addresses) != 60 {
				t.Errorf("%d addresses", len(result.IPv4.Addresses))
			}
		}},
		{"IPAM/58 blocks too small", func(t *testing.T, c *cluster) {
			for _, size := range []int{30, 31, 32} {
				c.pool(fmt.Sprint("p", size), fmt.Sprintf("10.%d.0.0/24", size), size)
			}
			c.config(strictConfig)
			_, err := c.ipam.Assign(c.ctx(), windows(c, 1))
			wantText(t, err, "cannot find a qualified ippool", "too small for the reserved addresses")
			wantCode(t, err, cnierr.NoPool)
		}},
		{"IPAM/59 smallest block", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.0.0/29", 29)
			c.config(strictConfig)
			result, err := c.ipam.Assign(c.ctx(), windows(c, 5))
			if err != nil {
				t.Fatal(err)
			}
			c.want(result.IPv4.Addresses, "10.77.0.3/29", "10.77.0.4/29", "10.77.0.5/29", "10.77.0.6/29")
		}},
		{"IPAM/60 nothing is borrowed", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			c.assign("worker-a", "linux", 193)
			c.fullBlockIn("10.77.0.0/24", "worker-b")
			result, err := c.ipam.Assign(c.ctx(), windows(c, 1))
			if err != nil {
				t.Fatal(err)
			}
			if want := "Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled; HostReservedAttr: windows-reserved-ipam-handle"; result.IPv4.Short != want {
				t.Errorf("%q, want %q", result.IPv4.Short, want)
			}
			wantCode(t, result.Err(), cnierr.AddressesExhausted)
		}},
		{"IPAM/61 a Windows block is not lent", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.0.0/26", 26)
			c.config(strictConfig)
			if _, err := c.ipam.Assign(c.ctx(), windows(c, 1)); err != nil {
				t.Fatal(err)
			}
			c.wantShort("worker-a", 1, 0, "strict affinity enabled")
		}},
		{"IPAM/62 single network", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			r := windows(c, 60)
			r.MaxBlocks = 1
			if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
				t.Fatal(err)
			}
			r.Count4, r.HandleID = 1, "k8s-pod-network.two"
			_, err := c.ipam.Assign(c.ctx(), r)
			wantCode(t, err, cnierr.BlockLimit)
			address := c.address("worker-b", "three", "10.77.0.200")
			address.MaxBlocks = 1
			_, err = c.ipam.AssignAddress(c.ctx(), address)
			wantCode(t, err, cnierr.BlockLimit)
		}},
		{"IPAM/63 a block with only Windows' addresses is empty", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.0.0/26", 26)
			c.config(strictConfig)
			if _, err := c.ipam.Assign(c.ctx(), windows(c, 1)); err != nil {
				t.Fatal(err)
			}
			c.release("one")
			c.clock.advance(2 * time.Minute)
			c.want(c.assign("worker-a", "two", 1), "10.77.0.0/26")
		}},
		{"IPAM/64 a new Windows block", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			blocks, err := c.ipam.EnsureBlock(c.ctx(), "worker-b", WindowsReservation(), nil)
			if err != nil || len(blocks) != 1 {
				t.Fatalf("%v, %v", blocks, err)
			}
			raw, _ := c.store.Raw(model.BlockKey{CIDR: blocks[0]}.Path())
			wantContains(t, raw, `"attributes":[{"handle_id":"windows-reserved-ipam-handle","secondary":{"note":"windows host rsvd"}}]`)
			if c.count("/calico/ipam/v2/handle/") != 0 {
				t.Error("a handle object was created")
			}
			address := c.address("worker-b", "three", "10.77.0.1")
			_, err = c.ipam.AssignAddress(c.ctx(), address)
			wantCode(t, err, cnierr.AddressTaken)
			wantText(t, err, "Address already assigned in block")
		}},
	})
}

// The cluster's further words for the table.

func wantCode(t *testing.T, err error, code cnierr.Code) {
	t.Helper()
	if got := cnierr.CodeOf(err); err == nil || got != code {
		t.Errorf("code %d, want %d: %v", got, code, err)
	}
}

func wantContains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q lacks %q", text, part)
	}
}

func (c *cluster) wantShort(host string, count, want int, parts ...string) {
	c.Helper()
	result, err := c.ipam.Assign(c.ctx(), c.request(host, "many", count))
	if err != nil {
		c.Fatal(err)
	}
	if got := len(result.IPv4.Addresses); got != want {
		c.Errorf("%d addresses, want %d", got, want)
	}
	for _, part := range parts {
		wantContains(c.T, result.IPv4.Short, part)
	}
}

func (c *cluster) wantConfirmed(host, cidr string) {
	c.Helper()
	if affinity := c.affinity(host, cidr); affinity == nil || affinity.State != model.StateConfirmed {
		c.Errorf("affinity of %s for %s: %+v", host, cidr, affinity)
	}
}

func (c *cluster) address(host, container, addr string) AddressRequest {
	r := c.request(host, container, 0)
	return AddressRequest{Addr: netip.MustParseAddr(addr), Host: host, HandleID: r.HandleID, Attributes: r.Attributes, Use: model.UseWorkload}
}

// count is the number of keys under a path.
func (c *cluster) count(prefix string) int {
	n := 0
	for _, path := range c.store.Paths() {
		if strings.HasPrefix(path, prefix) {
			n++
		}
	}
	return n
}

func (c *cluster) affinityPath(host, cidr string) string {
	return model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: netip.MustParsePrefix(cidr)}.Path()
}

func (c *cluster) plantAffinity(host, cidr, value string) {
	c.store.Plant(c.affinityPath(host, cidr), value)
}

// fullBlock plants a block of a host in which every address is taken, without
// handle objects: an old writer's allocations.
func (c *cluster) fullBlock(host string, cidr netip.Prefix) {
	c.Helper()
	block := model.NewBlock(cidr, "host:"+host, c.clock.Now(), nil)
	block.Allocate(block.Size(), model.Attribute{Owner: map[string]string{"node": host}}, nil)
	c.put(model.BlockKey{CIDR: cidr}, block)
	c.plantAffinity(host, cidr.String(), `{"state":"confirmed","deleted":false}`)
}

// fullBlockIn gives a host the last missing block of a pool, full.
func (c *cluster) fullBlockIn(pool, host string) {
	c.Helper()
	blocks := blockRange{netip.MustParsePrefix(pool), 26}
	for i := range blocks.count().limited(1024) {
		if cidr := blocks.at(newUint128(i)); c.block(cidr.String()) == nil {
			c.fullBlock(host, cidr)
			return
		}
	}
}

// fillAllButOneEach gives all four blocks of P26 to a host, one address free
// in each.
func (c *cluster) fillAllButOneEach(host string) {
	c.Helper()
	for i := range 4 {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(64 * i)}), 26)
		block := model.NewBlock(cidr, "host:"+host, c.clock.Now(), nil)
		block.Allocate(63, model.Attribute{Owner: map[string]string{"node": host}}, nil)
		c.put(model.BlockKey{CIDR: cidr}, block)
		c.plantAffinity(host, cidr.String(), `{"state":"confirmed","deleted":false}`)
	}
}

// emptyBlockOf gives one host an empty block, 10.77.0.192/26, and the other
// three to a second one, full.
func (c *cluster) emptyBlockOf(host, other string) {
	c.Helper()
	c.assign(host, "brief", 1)
	c.release("brief")
	for range 3 {
		c.fullBlockIn("10.77.0.0/24", other)
	}
}

func writes(call memory.Call, key model.Key) bool {
	for _, step := range call.Steps {
		for _, mutation := range step {
			if mutation.Key == key && mutation.Op != datastore.Expect {
				return true
			}
		}
	}
	return false
}

// beforeWriteOf runs what a rival does, once, just before a block is written.
func (c *cluster) beforeWriteOf(cidr string, rival func()) {
	done := false
	c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if !done && writes(call, model.BlockKey{CIDR: netip.MustParsePrefix(cidr)}) {
			done = true
			rival()
		}
		return nil
	}})
}

// competitor is another process on the same data.
func (c *cluster) competitor() *cluster {
	store := c.store.Competitor()
	return &cluster{T: c.T, store: store, clock: c.clock, ipam: New(store, Options{Now: c.clock.Now})}
}

// claimFor plants what another host's claim of a block leaves.
func claimFor(c *cluster, host, cidr string, r Request) error {
	block := model.NewBlock(netip.MustParsePrefix(cidr), "host:"+host, c.clock.Now(), nil)
	block.Allocate(1, model.Attribute{HandleID: r.HandleID, Owner: r.Attributes}, nil)
	body, err := json.Marshal(block)
	if err != nil {
		return err
	}
	c.plant(model.BlockKey{CIDR: block.CIDR}, string(body))
	c.plant(model.HandleKey{ID: r.HandleID}, `{"block":{"`+cidr+`":1},"deleted":false}`)
	c.plantAffinity(host, cidr, `{"state":"confirmed","deleted":false}`)
	return nil
}
