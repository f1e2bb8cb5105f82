package contracttest

import (
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func batchTests() []test {
	return []test{
		{"Batch/claim", claim},
		{"Batch/a transaction is all or nothing", allOrNothing},
		{"Batch/a transaction compares what it does not write", expectations},
		{"Batch/an expectation beside a change of the same key", expectAndChange},
		{"Batch/a conflict tells what is there now", conflictTellsCurrent},
		{"Batch/without transactions, the steps before a failure stay", stepsBeforeFailure},
		{"Batch/without transactions, expectations are ignored", expectationsIgnored},
	}
}

const claimed = "10.77.3.64/26"

var claimedHandle = model.HandleKey{ID: "net.3f9c"}

// claimSteps claims a block with its first allocation.
func claimSteps() []datastore.Step {
	return []datastore.Step{
		{
			datastore.Put(affinityKey(host, claimed), confirmed(), datastore.Absent),
			datastore.Put(claimedHandle, handleOf(claimed, 1), datastore.Absent),
			datastore.Guard(blockKey("10.77.2.0/23"), datastore.Absent),
		},
		{datastore.Put(blockKey(claimed), allocated(newBlock(claimed), claimedHandle.ID), datastore.Absent)},
	}
}

func claim(f *fixture) {
	written := f.write(claimSteps()...)
	objects := []model.Key{affinityKey(host, claimed), claimedHandle, blockKey(claimed)}
	for _, key := range objects {
		if written[key] == datastore.Absent {
			f.Errorf("no revision for the %s", key)
		}
		f.at(key, written[key])
	}
	if len(written) != len(objects) {
		f.Errorf("revisions of %d objects, want %d", len(written), len(objects))
	}
}

func allOrNothing(f *fixture) {
	if !f.store.Transactional() {
		return
	}
	f.createBlocks(claimed)
	conflict := f.fails(datastore.ErrExists, blockKey(claimed), claimSteps()...)
	if conflict.Applied != 0 {
		f.Errorf("%d steps applied", conflict.Applied)
	}
	f.absent(affinityKey(host, claimed), claimedHandle)
}

func expectations(f *fixture) {
	if !f.store.Transactional() {
		return
	}
	pool := poolKey("pods")
	first := f.create(pool, newPool("pods", "10.77.0.0/16"))
	second := f.put(pool, newPool("pods", "10.77.0.0/16"), first)
	guarded := func(guard datastore.Mutation) []datastore.Step {
		return append([]datastore.Step{{guard}}, claimSteps()...)
	}
	f.fails(datastore.ErrConflict, pool, guarded(datastore.Guard(pool, first))...)
	f.fails(datastore.ErrExists, pool, guarded(datastore.Guard(pool, datastore.Absent))...)
	f.fails(datastore.ErrNotFound, poolKey("none"), guarded(datastore.Guard(poolKey("none"), first))...)
	f.absent(affinityKey(host, claimed), claimedHandle, blockKey(claimed))
	f.write(guarded(datastore.Guard(pool, second))...)
	f.at(pool, second)
	f.write(datastore.Step{datastore.Guard(pool, second)})
	f.fails(datastore.ErrConflict, pool, datastore.Step{datastore.Guard(pool, first)})
}

func expectAndChange(f *fixture) {
	if !f.store.Transactional() {
		return
	}
	first := f.create(claimedHandle, handleOf(claimed, 1))
	written := f.write(
		datastore.Step{datastore.Guard(claimedHandle, first)},
		datastore.Step{datastore.Put(claimedHandle, handleOf(claimed, 2), first)},
	)
	f.fails(datastore.ErrConflict, claimedHandle,
		datastore.Step{datastore.Guard(claimedHandle, first)},
		datastore.Step{datastore.Remove(claimedHandle, datastore.Any)},
	)
	f.at(claimedHandle, written[claimedHandle])
}

func conflictTellsCurrent(f *fixture) {
	if !f.store.Transactional() {
		return
	}
	handle := f.create(claimedHandle, handleOf(claimed, 7))
	f.createBlocks(claimed)
	conflict := f.fails(datastore.ErrExists, claimedHandle, claimSteps()...)
	if len(conflict.Current) != 2 {
		f.Errorf("%d objects exist now, want 2: %v", len(conflict.Current), conflict.Current)
	}
	entry := conflict.Current[claimedHandle]
	if entry.Revision != handle || entry.Key != claimedHandle {
		f.Errorf("the handle is now %+v, want revision %q", entry, handle)
	}
	if reencode(f, claimedHandle, entry.Value) != reencode(f, claimedHandle, handleOf(claimed, 7)) {
		f.Errorf("the handle is now %+v", entry.Value)
	}
	// What it tells is enough to try again without a read.
	f.put(claimedHandle, handleOf(claimed, 8), entry.Revision)
}

func stepsBeforeFailure(f *fixture) {
	if f.store.Transactional() {
		return
	}
	f.createBlocks(claimed)
	conflict := f.fails(datastore.ErrExists, blockKey(claimed), claimSteps()...)
	if conflict.Applied != 1 {
		f.Errorf("%d steps applied, want 1", conflict.Applied)
	}
	for _, key := range []model.Key{affinityKey(host, claimed), claimedHandle} {
		if value, _ := f.get(key); value == nil {
			f.Errorf("the %s does not exist", key)
		}
	}
}

func expectationsIgnored(f *fixture) {
	if f.store.Transactional() {
		return
	}
	f.createBlocks("10.77.2.0/23")
	f.write(claimSteps()...)
	f.write(datastore.Step{datastore.Guard(blockKey(claimed), datastore.Absent)})
}
