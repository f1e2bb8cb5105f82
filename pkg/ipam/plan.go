package ipam

import (
	"net/netip"
	"slices"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// edit is one object to be written or, without a value, deleted; revision is
// the one that the decision was taken on.
type edit struct {
	key      model.Key
	value    any
	revision datastore.Revision
}

func (e edit) mutation() datastore.Mutation {
	if e.value == nil {
		return datastore.Remove(e.key, e.revision)
	}
	return datastore.Put(e.key, e.value, e.revision)
}

// claim is an affinity that the plan relies on: it must be as read or, with
// write set, becomes confirmed.
type claim struct {
	key      model.AffinityKey
	revision datastore.Revision
	write    bool
}

// plan is what to write, with the revisions that must still hold. A plan is
// either one that gives addresses and claims blocks, or one that takes them
// back; on engines without transactions this decides the order of the writes.
type plan struct {
	blocks  []edit
	handles []edit
	claims  []claim
	// released are affinities to be deleted.
	released []edit
	// guards must hold and are not written.
	guards []edit
	// takesBack: blocks before handles.
	takesBack bool
	// taken are the addresses that the plan allocates, per block.
	taken map[netip.Prefix][]netip.Addr
	// holder is who gets them.
	holder  model.Attribute
	outcome outcome
}

// outcome is how far a plan has got that is not known to be complete.
type outcome struct {
	// inSequence: the engine has no transactions; else all was done or nothing.
	inSequence bool
	// written is what certainly was, blocksDone that all blocks were.
	written    datastore.Written
	blocksDone bool
	// uncertain: the answer to a write was lost.
	uncertain bool
	// handlesUntried: a step before that of the handles failed.
	handlesUntried bool
}

// confirmed is what every affinity of ours says (IPAM contract 5.2).
func confirmed() *model.Affinity { return &model.Affinity{State: model.StateConfirmed} }

// transaction is the plan for an engine that applies all or nothing.
func (p *plan) transaction() datastore.Step {
	var step datastore.Step
	for _, c := range p.claims {
		if !c.write {
			step = append(step, datastore.Guard(c.key, c.revision))
			continue
		}
		step = append(step, datastore.Put(c.key, confirmed(), c.revision))
	}
	for _, edits := range [][]edit{p.released, p.blocks, p.handles} {
		for _, e := range edits {
			step = append(step, e.mutation())
		}
	}
	for _, e := range p.guards {
		step = append(step, datastore.Guard(e.key, e.revision))
	}
	return step
}

// keys are the objects whose revisions the plan depends on.
func (p *plan) keys() []model.Key {
	var keys []model.Key
	for _, mutation := range p.transaction() {
		keys = append(keys, mutation.Key)
	}
	return keys
}

// written are the keys of affinities, blocks and handles: what has to be read
// when it is unknown whether a write was done.
func (p *plan) written() []model.Key {
	var keys []model.Key
	for _, c := range p.claims {
		keys = append(keys, c.key)
	}
	for _, edits := range [][]edit{p.released, p.blocks, p.handles} {
		for _, e := range edits {
			keys = append(keys, e.key)
		}
	}
	return keys
}

// unsettled are the keys that have to be read when a plan has failed. Handles
// that were not tried are guarded by what was read of them before.
func (p *plan) unsettled() []model.Key {
	if !p.outcome.handlesUntried {
		return p.written()
	}
	return slices.DeleteFunc(p.written(), func(key model.Key) bool {
		_, isHandle := key.(model.HandleKey)
		return isHandle
	})
}

func (p *plan) empty() bool {
	return p == nil || len(p.blocks)+len(p.handles)+len(p.claims)+len(p.released) == 0
}
