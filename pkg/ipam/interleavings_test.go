package ipam

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// TestInterleavings steps operations through the orders of their requests,
// undisturbed and with one fault anywhere.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	for _, i := range slices.Concat(interleavings(), foreignInterleavings(), ownerInterleavings()) {
		for kind, options := range map[string]memory.Options{"transactional": {}, "sequential": {NonTransactional: true}} {
			t.Run("IPAM/65 "+i.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				calm := explorer{interleaving: i, options: options, turns: 2}
				faulty := explorer{interleaving: i, options: options, turns: 1, faults: 1}
				if i.large {
					calm.turns, faulty.turns = 1, 0
				}
				if i.sharedHandle && options.NonTransactional {
					faulty.faults = 0
				}
				t.Logf("%d schedules", calm.run(t)+faulty.run(t))
			})
		}
	}
}

// addOne is an ADD of one address; the runtime's answer to its failure is DEL.
func addOne(host, container string) actor {
	return actor{
		name: "ADD " + container + " on " + host,
		run: func(c *cluster, a *Allocator) error {
			r := c.request(host, container, 1)
			r.Attributes["timestamp"] = FormatTimestamp(a.now())
			result, err := a.Assign(context.Background(), r)
			if err == nil {
				err = result.Err()
			}
			if err == nil {
				c.wantHeld(r.HandleID, result.IPv4.Addresses[0])
			}
			return err
		},
		recover: delOf(container),
	}
}

func delOf(container string) func(c *cluster) error {
	return func(c *cluster) error { return c.ipam.ReleaseByHandle(c.ctx(), "k8s-pod-network."+container) }
}

func (c *cluster) wantHeld(id string, address netip.Prefix) {
	c.Helper()
	block := c.block(address.Masked().String())
	if block == nil {
		c.Errorf("%s of %s: there is no block", address, id)
		return
	}
	ordinal, _ := block.Ordinal(address.Addr())
	if holder := block.HolderOf(ordinal); holder == nil || holder.HandleID != id {
		c.Errorf("%s of %s is held by %+v", address, id, holder)
	}
}

func delOne(container string) actor {
	return actor{
		name: "DEL " + container,
		run: func(_ *cluster, a *Allocator) error {
			return a.ReleaseByHandle(context.Background(), "k8s-pod-network."+container)
		},
		recover: delOf(container),
	}
}

func removeHost(host string) actor {
	return actor{
		name:    "removal of " + host,
		run:     func(_ *cluster, a *Allocator) error { return a.RemoveHost(context.Background(), host) },
		recover: func(c *cluster) error { return c.ipam.RemoveHost(c.ctx(), host) },
	}
}

func interleavings() []interleaving {
	p26 := func(c *cluster) { c.p26() }
	nearlyFull := func(c *cluster) {
		c.p26()
		for range 3 {
			c.fullBlockIn("10.77.0.0/24", "worker-c")
		}
	}
	one := func(c *cluster) { c.p26(); c.assign("worker-b", "one", 1) }
	emptyOld := func(c *cluster) {
		c.p26()
		c.emptyBlockOf("worker-a", "worker-c")
		c.clock.advance(2 * time.Minute)
	}
	return []interleaving{
		{name: "ADD and ADD on one fresh host", prepare: p26, actors: []actor{addOne("worker-b", "one"), addOne("worker-b", "two")}},
		{name: "ADD and ADD on two fresh hosts", prepare: p26, actors: []actor{addOne("worker-a", "one"), addOne("worker-b", "two")}},
		{name: "three ADDs", large: true, prepare: p26, actors: []actor{addOne("worker-b", "one"), addOne("worker-b", "two"), addOne("worker-a", "three")}},
		{name: "two hosts and the last block", large: true, prepare: func(c *cluster) {
			nearlyFull(c)
			c.config(strictConfig)
		}, calmly: oneOf("one", "two"), actors: []actor{addAny("worker-a", "one"), addAny("worker-b", "two")}},
		{name: "two hosts and the last block, borrowing", large: true, prepare: nearlyFull, actors: []actor{addAny("worker-a", "one"), addOne("worker-b", "two")}},
		{name: "two ADDs of one container", sharedHandle: true, prepare: p26, actors: []actor{addOne("worker-b", "one"), addOne("worker-b", "one")}},
		{name: "two ADDs of one container again", sharedHandle: true, prepare: one, actors: []actor{addOne("worker-b", "one"), addOne("worker-b", "one")}},
		{name: "two ADDs and the last address", prepare: func(c *cluster) {
			c.pool("pods", "10.77.0.0/30", 30)
			c.assign("worker-b", "many", 3)
		}, calmly: oneOf("one", "two"), actors: []actor{addAny("worker-b", "one"), addAny("worker-a", "two")}},
		{name: "ADD and DEL of one container", prepare: one, actors: []actor{addOne("worker-b", "one"), delOne("one")}, handleRace: true},
		{name: "ADD and DEL of two containers", prepare: one, actors: []actor{addOne("worker-b", "two"), delOne("one")}},
		{name: "DEL and DEL", prepare: one, actors: []actor{delOne("one"), delOne("one")}, verify: func(c *cluster) { c.wantGone("k8s-pod-network.one") }},
		{name: "DEL and DEL of an ownerless block", prepare: func(c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.assign("worker-b", "two", 1)
			if err := c.ipam.RemoveHost(c.ctx(), "worker-b"); err != nil {
				c.Fatal(err)
			}
		}, actors: []actor{delOne("one"), delOne("two")}, verify: func(c *cluster) {
			if c.count("/calico/ipam/") != 0 {
				c.Error("something is left")
			}
		}},
		{name: "reclaim and ADD of the owner", large: true, loose: true, prepare: emptyOld, actors: []actor{addOne("worker-b", "one"), addOne("worker-a", "two")}},
		{name: "reclaim by two hosts", large: true, prepare: func(c *cluster) {
			emptyOld(c)
			c.config(strictConfig)
		}, actors: []actor{addAny("worker-b", "one"), addAny("worker-c", "two")}},
		{name: "ADD and removal of its host", prepare: one, actors: []actor{addOne("worker-b", "two"), removeHost("worker-b")}},
		{name: "ADD of another host and removal of a host", prepare: one, actors: []actor{addOne("worker-a", "two"), removeHost("worker-b")}},
		{name: "DEL and removal of its host", prepare: one, actors: []actor{delOne("one"), removeHost("worker-b")}, verify: func(c *cluster) { c.wantGone("k8s-pod-network.one") }},
		{name: "removal and removal", prepare: one, actors: []actor{removeHost("worker-b"), removeHost("worker-b")}},
		{name: "GC and ADD", prepare: func(c *cluster) { one(c); c.clock.advance(time.Second) }, actors: []actor{gc("worker-b"), addOne("worker-b", "two")},
			verify: func(c *cluster) { c.wantGone("k8s-pod-network.one") }},
		{name: "GC and DEL", prepare: func(c *cluster) { one(c); c.clock.advance(time.Second) }, actors: []actor{gc("worker-b"), delOne("one")},
			verify: func(c *cluster) { c.wantGone("k8s-pod-network.one") }},
		{name: "release of two addresses of one handle", sharedHandle: true, prepare: func(c *cluster) { c.p26(); c.assign("worker-b", "one", 3) },
			actors: []actor{releaseOf("10.77.0.0"), releaseOf("10.77.0.1")}},
		{name: "release of an address and DEL", prepare: func(c *cluster) { c.p26(); c.assign("worker-b", "one", 2) },
			actors: []actor{releaseOf("10.77.0.0"), delOne("one")}, verify: func(c *cluster) { c.wantGone("k8s-pod-network.one") }},
		{name: "two requests of one address", prepare: p26, calmly: oneOf("one", "two"),
			actors: []actor{addCertain("worker-a", "one", "10.77.0.9"), addCertain("worker-b", "two", "10.77.0.9")}},
		{name: "request of the address that comes next", prepare: one,
			actors: []actor{addCertain("worker-b", "two", "10.77.0.1"), addOne("worker-b", "three")}},
		{name: "two ADDs of both families and one IPv6 address", large: true, loose: true, calmly: oneOf("one", "two"), prepare: func(c *cluster) {
			c.p26()
			c.pool("six", "fd00::/128", 128)
		}, actors: []actor{addBoth("worker-b", "one"), addBoth("worker-a", "two")}},
		{name: "claim and deletion of the pool", prepare: p26, actors: []actor{addAny("worker-b", "one"), deletePool()}, verify: func(c *cluster) {
			if c.store.Transactional() && c.count("/calico/ipam/v2/assignment/") > 0 && c.handle("one") == nil {
				c.Error("a block was claimed from a pool that is gone")
			}
		}},
	}
}

// addAny is an ADD that may well find nothing, and then leaves nothing.
func addAny(host, container string) actor {
	a := addOne(host, container)
	a.mayFail = true
	return a
}

// addBoth is an ADD of both families that may find only one.
func addBoth(host, container string) actor {
	a := addAny(host, container)
	a.run = func(c *cluster, a *Allocator) error {
		r := c.request(host, container, 1)
		r.Count6 = 1
		_, err := a.Assign(context.Background(), r)
		return err
	}
	return a
}

// addCertain is an ADD of one certain address that may be taken.
func addCertain(host, container, addr string) actor {
	a := addAny(host, container)
	a.name += " of " + addr
	a.run = func(c *cluster, a *Allocator) error {
		_, err := a.AssignAddress(context.Background(), c.address(host, container, addr))
		return err
	}
	return a
}

// oneOf checks that exactly one of two containers has an address.
func oneOf(one, two string) func(c *cluster) {
	return func(c *cluster) {
		c.Helper()
		if (c.handle(one) == nil) == (c.handle(two) == nil) {
			c.Errorf("handles %+v of %s, %+v of %s, want one", c.handle(one), one, c.handle(two), two)
		}
	}
}

func gc(host string) actor {
	run := func(ctx context.Context, c *cluster, a *Allocator) error {
		_, err := a.ReleaseStale(ctx, GCRequest{
			Network: "k8s-pod-network", Host: host, Before: c.clock.Now(), NoteIDs: []string{"k8s-pod-network.one"},
			ValidContainers: map[string]bool{"two": true},
		})
		return err
	}
	return actor{
		name:    "GC on " + host,
		run:     func(c *cluster, a *Allocator) error { return run(context.Background(), c, a) },
		recover: func(c *cluster) error { return run(c.ctx(), c, c.ipam) },
	}
}

func releaseOf(addr string) actor {
	run := func(ctx context.Context, a *Allocator) error {
		_, _, err := a.ReleaseAddresses(ctx, []Release{{Addr: netip.MustParseAddr(addr)}})
		return err
	}
	return actor{
		name:    "release of " + addr,
		run:     func(_ *cluster, a *Allocator) error { return run(context.Background(), a) },
		recover: func(c *cluster) error { return delOf("one")(c) },
	}
}

func deletePool() actor {
	return actor{name: "deletion of the pool", foreign: func(ctx context.Context, _ *cluster, store datastore.Store) error {
		_, err := store.Write(ctx, datastore.Step{datastore.Remove(model.ResourceKey{Kind: model.KindIPPool, Name: "pods"}, datastore.Any)})
		return err
	}}
}
