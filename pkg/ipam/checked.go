package ipam

import (
	"slices"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// CheckedPool is a pool in which a list of all blocks has shown none of
// another size. None can appear as long as this pool object lives, since a
// pool's block size is never changed (IPAM contract 5.1).
type CheckedPool struct {
	UID       string
	BlockSize int
}

// CheckedPools is the memory of checked pools between calls. It only saves
// lists: what it forgets is looked up again.
type CheckedPools interface {
	Load() map[CheckedPool]bool
	// Replace makes these the only ones remembered.
	Replace(map[CheckedPool]bool)
}

// finalizer on a pool proves that no earlier pool was deleted under its blocks
// (IPAM contract 5.1).
const finalizer = "projectcalico.org/ippool-finalizer"

// loadChecked recalls the checked pools. An engine with transactions needs
// none: the claim itself excludes blocks of another size.
func (e *engine) loadChecked() {
	if e.checked != nil && !e.store.Transactional() {
		e.facts.checked = e.checked.Load()
	}
}

func (e *engine) storeChecked() {
	if e.checked == nil || e.store.Transactional() {
		return
	}
	if now := e.facts.checkedNow(); now != nil {
		e.checked.Replace(now)
	}
}

func (p pool) checkedAs() CheckedPool { return CheckedPool{p.Metadata.UID, p.BlockSize} }

func allKeys(family model.Family) datastore.Query {
	return datastore.ListBlocks{Family: family, KeysOnly: true}
}

func (f *facts) listed(family model.Family) bool {
	_, listed := f.answered[allKeys(family)]
	return listed
}

// knowsLeftovers reports whether the census holds every block of another size
// that may lie in the pool.
func (f *facts) knowsLeftovers(p pool) bool {
	return f.listed(p.family()) || slices.Contains(p.Metadata.Finalizers, finalizer) || f.checked[p.checkedAs()]
}

// checkedNow is what to remember at the end of a verb: the pools that it took
// addresses from and that a list has cleared, and those remembered before that
// are still there. It is nil if nothing is new.
func (f *facts) checkedNow() map[CheckedPool]bool {
	cleared := map[CheckedPool]bool{}
	for cidr := range f.obtained {
		p, ok := poolOf(f.pools, cidr.Addr())
		if ok && p.Metadata.UID != "" && f.listed(p.family()) && !f.checked[p.checkedAs()] && !f.hasLeftovers(p) {
			cleared[p.checkedAs()] = true
		}
	}
	if len(cleared) == 0 {
		return nil
	}
	for _, p := range f.pools {
		if f.checked[p.checkedAs()] {
			cleared[p.checkedAs()] = true
		}
	}
	return cleared
}

func (f *facts) hasLeftovers(p pool) bool {
	for cidr := range f.census.exists {
		if cidr.Bits() != p.BlockSize && cidr.Overlaps(p.cidr) {
			return true
		}
	}
	return false
}
