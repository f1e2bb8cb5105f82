package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

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
