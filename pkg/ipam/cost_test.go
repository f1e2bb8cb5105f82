package ipam

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// crowd fills a pool with other hosts' blocks, and adds nodes and pools.
func (c *cluster) crowd(blocks int) {
	c.Helper()
	pool := blockRange{netip.MustParsePrefix("10.77.0.0/16"), 26}
	start := newDraw(pool, "worker-b", time.Time{}).next()
	for i := range blocks {
		cidr := pool.at(newUint128(i * 7 % 1024))
		// The steady search begins at a block that is free.
		if pool.distance(start, pool.index(cidr.Addr())).less(newUint128(5)) {
			continue
		}
		c.node(fmt.Sprint("node-", i), nil)
		c.pool(fmt.Sprint("z", i), fmt.Sprintf("10.%d.%d.0/24", 100+i/256, i%256), 26)
		c.fullBlock(fmt.Sprint("node-", i), cidr)
	}
}

// TestCost is the promise of round trips: it does not grow with the number of
// nodes, blocks and pools. The plugins share the first read and add one write
// of the endpoint.
func TestCost(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name               string
		options            memory.Options
		claim, steady, del int
	}{
		// batch, probe, claim | batch, own blocks, write | batch, blocks, write
		{"transactional", memory.Options{}, 3, 3, 3},
		// batch, candidates, affinity + handle, block, confirm | batch, own
		// blocks, handle, block | batch, blocks, block, handle
		{"sequential", memory.Options{NonTransactional: true}, 5, 4, 4},
	}
	for _, test := range tests {
		for _, others := range []int{0, 500} {
			t.Run(fmt.Sprintf("%s, %d other blocks", test.name, others), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, test.options)
				c.finalizedPool("pods", "10.77.0.0/16")
				c.crowd(others)
				c.wantRounds("claim", test.claim, func() { c.assign("worker-b", "one", 1) })
				c.wantRounds("steady ADD", test.steady, func() { c.assign("worker-b", "two", 1) })
				c.wantRounds("DEL", test.del, func() { c.release("one") })
				c.wantRounds("requested address", test.steady, func() {
					if _, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "three", "10.77.194.40")); err != nil {
						t.Error(err)
					}
				})
				c.assign("worker-b", "fill", 62)
				// One more: the own block is looked at first.
				c.wantRounds("claim with a full own block", test.claim+1, func() { c.assign("worker-b", "four", 1) })
				c.wantRounds("STATUS", 2, func() {
					if err := c.ipam.Probe(c.ctx(), c.request("worker-b", "five", 1)); err != nil {
						t.Error(err)
					}
				})
				verifyConsistent(t, c.store)
			})
		}
	}
}

// finalizedPool declares a pool of /26 blocks that needs no check for blocks
// of another size on an engine that can only list all.
func (c *cluster) finalizedPool(name, cidr string) {
	c.plant(model.ResourceKey{Kind: model.KindIPPool, Name: name}, fmt.Sprintf(
		`{"metadata":{"name":%q,"finalizers":[%q]},"spec":{"cidr":%q,"blockSize":26}}`, name, finalizer, cidr))
}

func (c *cluster) wantRounds(what string, want int, do func()) {
	c.Helper()
	c.store.ForgetCalls()
	do()
	if got := c.store.Rounds(); got != want {
		for _, call := range c.store.Calls() {
			c.Log(call)
		}
		c.Errorf("%s took %d rounds, want %d", what, got, want)
	}
}

// TestCostFullBlocks: full own blocks are read several at a time.
func TestCostFullBlocks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		options     memory.Options
		full, round int
	}{
		{"transactional, 8", memory.Options{}, 8, 1 + 1 + 2},
		{"transactional, 19", memory.Options{}, 19, 1 + 3 + 2},
		{"transactional, 20", memory.Options{}, 20, 1 + 3},
		{"sequential, 8", memory.Options{NonTransactional: true}, 8, 1 + 4 + 4},
		{"sequential, 20", memory.Options{NonTransactional: true}, 20, 1 + 10},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, test.options)
			c.finalizedPool("pods", "10.77.0.0/16")
			for i := range test.full {
				c.fullBlock("worker-b", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i), 0}), 26))
			}
			c.wantRounds("ADD", test.round, func() {
				_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
				if limited := test.full == 20; limited != (err != nil) {
					t.Error(err)
				}
			})
		})
	}
}

// TestCostDualStack: both families in the same reads and the same write.
func TestCostDualStack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	c.pool("pods-v6", "fd00:77:1::/112", 122)
	for _, want := range []int{3, 3} {
		c.wantRounds("dual-stack ADD", want, func() {
			r := c.request("worker-c", "one", 1)
			r.Count6 = 1
			result, err := c.ipam.Assign(c.ctx(), r)
			if err != nil || len(result.IPv4.Addresses) != 1 || len(result.IPv6.Addresses) != 1 {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
	if got := c.block("fd00:77:1::8240/122"); got == nil {
		t.Error("IPv6 search began elsewhere")
	}
	verifyConsistent(t, c.store)
}

// TestFirstReads: the first read of each verb asks exactly what its queries
// announce, so that a caller can ask it together with its own.
func TestFirstReads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	dual := c.request("worker-b", "one", 1)
	dual.Count6 = 0
	address := c.address("worker-b", "two", "10.77.0.9")
	tests := []struct {
		name    string
		queries []datastore.Query
		run     func(*Allocator) error
	}{
		{"Assign", AssignQueries(dual), func(a *Allocator) error { _, err := a.Assign(c.ctx(), dual); return err }},
		{"Probe", AssignQueries(dual), func(a *Allocator) error { return a.Probe(c.ctx(), dual) }},
		{"AssignAddress", AddressQueries(address), func(a *Allocator) error { _, err := a.AssignAddress(c.ctx(), address); return err }},
		{"ReleaseByHandle", ReleaseQueries("k8s-pod-network.one", "shop.web-0"), func(a *Allocator) error {
			return a.ReleaseByHandle(c.ctx(), "k8s-pod-network.one", "shop.web-0")
		}},
	}
	for _, test := range tests {
		_, shared, err := datastore.Prefetch(c.ctx(), c.store, nil, test.queries)
		if err != nil {
			t.Fatal(err)
		}
		c.store.ForgetCalls()
		if err := test.run(New(shared, Options{Now: c.clock.Now})); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		for _, call := range c.store.Calls() {
			if reflect.DeepEqual(call.Queries, test.queries) {
				t.Errorf("%s read its first queries again", test.name)
			}
		}
		c.store.ForgetCalls()
		if err := test.run(c.ipam); err != nil && test.name != "AssignAddress" {
			t.Errorf("%s: %v", test.name, err)
		}
		if first := c.store.Calls()[0].Queries; !reflect.DeepEqual(first, test.queries) {
			t.Errorf("%s asks %v first, announced %v", test.name, first, test.queries)
		}
	}
}
