package ipam

import (
	"context"
	"net/netip"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// The hosts of the automaton's scenes, and the block that they quarrel about.
const (
	hostA, hostB = "worker-a", "worker-b"
	theBlock     = "10.77.0.0/31"
)

// oneBlock is a pool of one block.
func oneBlock(c *cluster) { c.pool("pods", theBlock, 31) }

// emptyBlock is host A's only block, empty.
func emptyBlock(c *cluster) {
	oneBlock(c)
	c.assign(hostA, "gone", 1)
	c.release("gone")
}

func unconfirmedBlock(c *cluster) {
	emptyBlock(c)
	c.everyAffinityOf(hostA, model.StatePending)
}

// heldBlock is host A's only block, with one address taken.
func heldBlock(c *cluster) {
	oneBlock(c)
	c.give(hostA, "held", 1)
}

func twoInOneHandle(c *cluster) {
	c.pool("pods", "10.77.0.0/30", 30)
	c.give(hostA, "held", 2)
}

// give is an ADD whose handle is the container's name.
func (c *cluster) give(host, container string, count int) {
	c.Helper()
	if _, err := addTo(host, container, count).run(c.ctx(), c.store, c.ipam); err != nil {
		c.Fatal(err)
	}
}

// everyAffinityOf puts a host's affinities into a state.
func (c *cluster) everyAffinityOf(host string, state model.AffinityState) {
	c.Helper()
	for key := range look(c.store).affinities {
		if key.Host == host {
			c.put(key, &model.Affinity{State: state})
		}
	}
}

// ownerAndBorrower: host A takes an address of its block, host B borrows one.
func ownerAndBorrower(prepare func(c *cluster)) scene {
	return scene{prepare: prepare, processes: [][]operation{{addTo(hostA, "one", 1)}, {addTo(hostB, "two", 1)}}}
}

// claimedTwice: another program claims the block for the same host.
func claimedTwice(prepare func(c *cluster)) scene {
	return scene{prepare: prepare, processes: [][]operation{{addTo(hostA, "one", 1)}, {claims(hostA)}}}
}

// handleInTwoBlocks: a container has an address in a full block of host A, and
// gets another in the next block while its handle is released.
func handleInTwoBlocks(next func(c *cluster)) scene {
	return scene{shared: true, processes: [][]operation{{addTo(hostA, "held", 1)}, {takeFrom(hostA, "held")}}, prepare: func(c *cluster) {
		twoBlocks(c)
		c.give(hostA, "held", 1)
		c.give(hostA, "other", 1)
		next(c)
	}}
}

// releasedAddress is the same with the release of the one address.
func releasedAddress() scene {
	s := handleInTwoBlocks(func(*cluster) {})
	s.processes[1] = []operation{takeOne(hostA, "held", "10.77.0.0")}
	return s
}

// leftAndClaimed: a host leaves, without a block, while another program claims
// one for it.
func leftAndClaimed(state model.AffinityState) scene {
	return scene{processes: [][]operation{{leave(hostA)}, {claims(hostA)}}, prepare: func(c *cluster) {
		oneBlock(c)
		c.put(quarrel(hostA), &model.Affinity{State: state})
	}}
}

// reclaimed: host B reclaims the empty block of host A.
func reclaimed(meanwhile operation) scene {
	return scene{processes: [][]operation{{meanwhile}, {addTo(hostB, "two", 1)}}, prepare: func(c *cluster) {
		emptyBlock(c)
		c.config(strictConfig)
		c.clock.advance(time.Hour)
	}}
}

// staleClaim: host A has an affinity for a block of host B, which leaves, and
// another program claims the block for A.
func staleClaim(state model.AffinityState) scene {
	return scene{processes: [][]operation{{addTo(hostA, "one", 1)}, {claims(hostA)}, {leave(hostB)}}, prepare: func(c *cluster) {
		oneBlock(c)
		c.assign(hostB, "gone", 1)
		c.release("gone")
		c.put(quarrel(hostA), &model.Affinity{State: state})
	}}
}

func quarrel(host string) model.AffinityKey {
	return model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: netip.MustParsePrefix(theBlock)}
}

// foreignOnce is an operation of another program that happens once.
func foreignOnce(name, host string, do func(ctx context.Context, f *foreigner) error) operation {
	return operation{name: name + " by another program", host: host, kind: foreignWork, once: true,
		run: func(ctx context.Context, store datastore.Store, a *Allocator) ([]netip.Prefix, error) {
			c := &cluster{clock: &clock{now: a.now()}}
			return nil, do(ctx, &foreigner{store: store, c: c, host: host, cidr: netip.MustParsePrefix(theBlock)})
		}}
}

func givesUp(host string) operation {
	return foreignOnce("release of the block", host, func(ctx context.Context, f *foreigner) error { return f.giveUp(ctx) })
}

func claims(host string) operation {
	return foreignOnce("claim", host, func(ctx context.Context, f *foreigner) error {
		_, err := f.claim(ctx)
		return err
	})
}

func poolGoes() operation {
	return foreignOnce("deletion of the pool", hostB, func(ctx context.Context, f *foreigner) error {
		_, err := f.write(ctx, datastore.Remove(model.ResourceKey{Kind: model.KindIPPool, Name: "pods"}, datastore.Any))
		return err
	})
}

// largerBlock is a claim of the block that covers both, if neither exists.
func largerBlock() operation {
	return foreignOnce("claim of a larger block", hostB, func(ctx context.Context, f *foreigner) error {
		larger := model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/30")}
		_, err := f.store.Write(ctx, datastore.Step{
			datastore.Put(larger, model.NewBlock(larger.CIDR, "host:"+hostB, f.c.clock.Now(), nil), datastore.Absent),
			datastore.Guard(f.blockKey(), datastore.Absent),
			datastore.Guard(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.2/31")}, datastore.Absent),
		})
		return ignoreLost(err)
	})
}

// takeOne releases one address.
func takeOne(host, container, address string) operation {
	o := takeFrom(host, container)
	o.name = "release of " + address
	o.once = true
	o.run = func(ctx context.Context, _ datastore.Store, a *Allocator) ([]netip.Prefix, error) {
		_, _, err := a.ReleaseAddresses(ctx, []Release{{Addr: netip.MustParseAddr(address), HandleID: container}})
		return nil, err
	}
	return o
}
