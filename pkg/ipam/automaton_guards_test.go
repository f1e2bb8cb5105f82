package ipam

import (
	"slices"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// guard is a comparison of IPAM contract 5.2 and what shows that it is needed:
// a few processes on a few objects of which one breaks a property without it.
type guard struct {
	name string
	// of is the operation whose writes lose the guard, on what the object.
	of   operationKind
	host string
	on   func(m datastore.Mutation) bool
	// breaks is the property that fails then, and only then.
	breaks demand
	scene  scene
}

// scene is who does what.
type scene struct {
	prepare func(c *cluster)
	// processes are the operations of each.
	processes [][]operation
	// shared: several processes serve one container.
	shared bool
}

func (s scene) automaton(kind string) *automaton {
	m := &automaton{options: kinds[kind], prepare: s.prepare, races: 3, shared: s.shared}
	for i, operations := range s.processes {
		m.does(i, operations...)
	}
	return m
}

// unguarded makes a mutation hold whatever is there.
func unguarded(at *objectSet, m datastore.Mutation) datastore.Mutation {
	now := at.revisions[m.Key.Path()]
	switch {
	case m.Op == datastore.Expect:
		return datastore.Guard(m.Key, now)
	case m.Op == datastore.Delete:
		return datastore.Remove(m.Key, datastore.Any)
	}
	return datastore.Put(m.Key, m.Value, now)
}

func onBlock(m datastore.Mutation) bool {
	key, ok := m.Key.(model.BlockKey)
	return ok && key.CIDR.Bits() == 31
}

func onCovering(m datastore.Mutation) bool {
	key, ok := m.Key.(model.BlockKey)
	return ok && key.CIDR.Bits() < 31
}

func onHandle(m datastore.Mutation) bool {
	_, ok := m.Key.(model.HandleKey)
	return ok
}

func onPool(m datastore.Mutation) bool {
	_, ok := m.Key.(model.ResourceKey)
	return ok
}

func onAffinity(m datastore.Mutation) bool {
	_, ok := m.Key.(model.AffinityKey)
	return ok
}

func onAffinityBecoming(state model.AffinityState) func(m datastore.Mutation) bool {
	return func(m datastore.Mutation) bool {
		affinity, ok := m.Value.(*model.Affinity)
		return ok && affinity.State == state
	}
}

func onAffinityDeleted(m datastore.Mutation) bool { return onAffinity(m) && m.Op == datastore.Delete }

// TestGuards takes away one guard at a time. The property holds with it, and
// the automaton finds the fault without it.
func TestGuards(t *testing.T) {
	t.Parallel()
	for kind, guards := range map[string][]guard{"transactional": transactionGuards(), "sequential": sequenceGuards()} {
		for _, g := range guards {
			t.Run(kind+"/"+g.name, func(t *testing.T) {
				t.Parallel()
				sound := g.scene.automaton(kind)
				sound.demands = []demand{g.breaks}
				if found := sound.explore(newCluster(t, kinds[kind])); found != nil {
					t.Fatalf("with the guard: %v", found)
				}
				broken := g.scene.automaton(kind)
				broken.demands = sound.demands
				broken.weaken = func(o operation, at *objectSet, m datastore.Mutation) datastore.Mutation {
					if o.kind != g.of || g.host != "" && o.host != g.host || !g.on(m) {
						return m
					}
					return unguarded(at, m)
				}
				if found := broken.explore(newCluster(t, kinds[kind])); found == nil {
					t.Errorf("nothing is found without the guard, in %d states", broken.states)
				}
				t.Logf("%d states with the guard; without it the fault is found after %d", sound.states, broken.states)
			})
		}
	}
}

// transactionGuards are the table of IPAM contract 5.2, row by row.
func transactionGuards() []guard {
	return []guard{
		{"own block, affinity", adding, "", onAffinity, claimedUse, scene{prepare: emptyBlock, processes: [][]operation{{addTo(hostA, "one", 1)}, {givesUp(hostA)}}}},
		{"own block, block", adding, hostA, onBlock, keptAddresses, ownerAndBorrower(emptyBlock)},
		{"own block, handle", adding, "", onHandle, exactCounts, handleInTwoBlocks(func(c *cluster) { c.assign(hostA, "filling", 1) })},
		{"claim, block", adding, hostA, onBlock, keptAddresses, ownerAndBorrower(oneBlock)},
		{"claim, affinity", adding, "", onAffinity, noLostUpdate, claimedTwice(oneBlock)},
		{"claim, handle", adding, "", onHandle, exactCounts, handleInTwoBlocks(func(*cluster) {})},
		{"claim, pool", adding, "", onPool, poolsOnly, scene{prepare: oneBlock, processes: [][]operation{{addTo(hostA, "one", 1)}, {poolGoes()}}}},
		{"claim, covering blocks", adding, "", onCovering, noOverlap, scene{prepare: twoBlocks, processes: [][]operation{{addTo(hostA, "one", 1)}, {largerBlock()}}}},
		{"unconfirmed, affinity", adding, "", onAffinity, noLostUpdate, claimedTwice(unconfirmedBlock)},
		{"unconfirmed, block", adding, hostA, onBlock, keptAddresses, ownerAndBorrower(unconfirmedBlock)},
		{"unconfirmed, handle", adding, "", onHandle, exactCounts, handleInTwoBlocks(func(c *cluster) {
			c.assign(hostA, "filling", 1)
			c.everyAffinityOf(hostA, model.StatePending)
		})},
		{"borrow, block", adding, hostB, onBlock, keptAddresses, ownerAndBorrower(emptyBlock)},
		{"borrow, handle", adding, "", onHandle, exactCounts, handleInTwoBlocks(func(c *cluster) { c.assign(hostB, "filling", 1) })},
		{"release by handle, block", deleting, "", onBlock, keptAddresses, scene{prepare: heldBlock, processes: [][]operation{{takeFrom(hostA, "held")}, {addTo(hostB, "two", 1)}}}},
		{"release by handle, handle", deleting, "", onHandle, exactCounts, handleInTwoBlocks(func(*cluster) {})},
		{"release by address, block", deleting, "", onBlock, keptAddresses, scene{prepare: heldBlock, processes: [][]operation{{takeOne(hostA, "held", "10.77.0.0")}, {addTo(hostB, "two", 1)}}}},
		{"release by address, handle", deleting, "", onHandle, exactCounts, releasedAddress()},
		{"release of an affinity, affinity", releasing, "", onAffinity, noLostUpdate, leftAndClaimed(model.StatePending)},
		{"release of an affinity, block", releasing, "", onBlock, keptAddresses, scene{prepare: emptyBlock, processes: [][]operation{{leave(hostA)}, {addTo(hostB, "two", 1)}}}},
		{"release of an affinity, missing block", releasing, "", onBlock, noneLeft, leftAndClaimed(model.StateConfirmed)},
		{"reclaim, affinity", adding, hostB, onAffinityDeleted, noLostUpdate, reclaimed(givesUp(hostA))},
		{"reclaim, block", adding, hostB, onBlock, keptAddresses, reclaimed(addTo(hostA, "one", 1))},
		{"stale affinity, affinity", adding, hostA, onAffinityDeleted, noLostUpdate, staleClaim(model.StatePending)},
		{"stale affinity, block", adding, hostA, onBlock, noneLeft, staleClaim(model.StateConfirmed)},
	}
}

// sequenceGuards are the revisions of the requests without transactions.
func sequenceGuards() []guard {
	return []guard{
		{"own block, block", adding, hostA, onBlock, keptAddresses, ownerAndBorrower(emptyBlock)},
		{"own block, handle", adding, "", onHandle, exactCounts, scene{prepare: emptyBlock, shared: true,
			processes: [][]operation{{addTo(hostA, "one", 1)}, {addTo(hostA, "one", 1)}}}},
		{"claim, affinity becoming pending", adding, "", onAffinityBecoming(model.StatePending), noLostUpdate, claimedTwice(oneBlock)},
		{"claim, block", adding, hostA, onBlock, keptAddresses, ownerAndBorrower(oneBlock)},
		{"claim, affinity becoming confirmed", adding, "", onAffinityBecoming(model.StateConfirmed), noLostUpdate, claimedTwice(oneBlock)},
		{"borrow, block", adding, hostB, onBlock, keptAddresses, ownerAndBorrower(emptyBlock)},
		{"release by handle, block", deleting, "", onBlock, keptAddresses, scene{prepare: heldBlock, processes: [][]operation{{takeFrom(hostA, "held")}, {addTo(hostB, "two", 1)}}}},
		{"release by address, handle", deleting, "", onHandle, noLostUpdate, scene{prepare: twoInOneHandle, shared: true,
			processes: [][]operation{{takeOne(hostA, "held", "10.77.0.0")}, {takeOne(hostA, "held", "10.77.0.1")}}}},
		{"release of an affinity, affinity becoming pendingDeletion", releasing, "", onAffinityBecoming(model.StatePendingDeletion), noLostUpdate,
			scene{prepare: emptyBlock, processes: [][]operation{{leave(hostA)}, {givesUp(hostA)}}}},
		{"release of an affinity, block", releasing, "", onBlock, keptAddresses, scene{prepare: emptyBlock, processes: [][]operation{{leave(hostA)}, {addTo(hostB, "two", 1)}}}},
		{"release of an affinity, affinity", releasing, "", onAffinityDeleted, noLostUpdate, leftAndClaimed(model.StatePending)},
	}
}

func TestGuardNamesDiffer(t *testing.T) {
	t.Parallel()
	for _, guards := range [][]guard{transactionGuards(), sequenceGuards()} {
		var names []string
		for _, g := range guards {
			if slices.Contains(names, g.name) {
				t.Errorf("two guards are called %q", g.name)
			}
			names = append(names, g.name)
		}
	}
}
