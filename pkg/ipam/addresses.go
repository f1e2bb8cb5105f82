package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Release asks for one address to be given back.
type Release struct {
	Addr netip.Addr
	// HandleID must match the holder's; empty: any.
	HandleID string
	// Sequence must match the allocation's sequence number; nil: any.
	Sequence *uint64
}

// ReleaseAddresses gives single addresses back (IPAM contract 6, ReleaseIPs).
// It returns the addresses that were not allocated, which is no error, and the
// requests that were carried out. A wrong handle or sequence number fails all
// requests for the same block with datastore.ErrConflict; other blocks are
// done all the same, and all failures are returned.
func (a *Allocator) ReleaseAddresses(ctx context.Context, releases []Release) (unallocated []netip.Addr, released []Release, err error) {
	if slices.ContainsFunc(releases, func(r Release) bool { return !r.Addr.IsValid() }) {
		return nil, nil, errors.New("releasing addresses: one of them is empty")
	}
	if len(releases) == 0 {
		return nil, nil, nil
	}
	e := a.engine("")
	if err := e.read(ctx, datastore.Get{Key: model.IPAMConfigKey{}}, datastore.ListResources{Kind: model.KindIPPool}); err != nil {
		return nil, nil, err
	}
	byBlock, unknown, err := e.groupByBlock(ctx, releases)
	if err != nil {
		return nil, nil, err
	}
	unallocated = unknown
	var failures []error
	for _, cidr := range sortedPrefixes(byBlock) {
		d := &addressRelease{facts: e.facts, transactional: a.store.Transactional(), block: cidr, releases: byBlock[cidr]}
		if err := e.run(ctx, d.decide); err != nil {
			failures = append(failures, err)
			continue
		}
		unallocated = append(unallocated, d.unallocated...)
		released = append(released, byBlock[cidr]...)
		if len(d.ordinals) > 0 {
			e.returnUnselected(ctx, []netip.Prefix{cidr})
		}
	}
	return unallocated, released, errors.Join(failures...)
}

func sortedPrefixes[V any](m map[netip.Prefix]V) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(m), func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
}

// groupByBlock finds the block of each address by its pool, in whatever state
// that is; only for an address outside all pools are the blocks listed.
func (e *engine) groupByBlock(ctx context.Context, releases []Release) (byBlock map[netip.Prefix][]Release, unknown []netip.Addr, err error) {
	byBlock = map[netip.Prefix][]Release{}
	for _, r := range releases {
		p, ok := poolOf(e.facts.pools, r.Addr)
		if ok {
			byBlock[p.blockOf(r.Addr)] = append(byBlock[p.blockOf(r.Addr)], r)
			continue
		}
		if family := model.FamilyOf(r.Addr); !e.facts.listed(family) {
			if err := e.read(ctx, allKeys(family)); err != nil {
				return nil, nil, err
			}
		}
		if cidr, ok := e.facts.census.holding(r.Addr); ok {
			byBlock[cidr] = append(byBlock[cidr], r)
		} else {
			unknown = append(unknown, r.Addr)
		}
	}
	return byBlock, unknown, nil
}

// addressRelease is the decision for the addresses of one block.
type addressRelease struct {
	facts         *facts
	transactional bool
	block         netip.Prefix
	releases      []Release

	unallocated []netip.Addr
	ordinals    []int
	counts      map[string]int
	// last is the plan before; blockDone: when that was made, the block had
	// been written.
	last      *plan
	blockDone bool
}

func (d *addressRelease) decide() (decision, error) {
	if !d.facts.known(d.block) {
		return decision{needs: gets([]model.Key{model.BlockKey{CIDR: d.block}})}, nil
	}
	written := d.blockWritten()
	if written && d.transactional {
		return decision{}, nil
	}
	if !written {
		if err := d.inspect(); err != nil || len(d.ordinals) == 0 {
			return decision{}, err
		}
	}
	if needs := d.unreadHandles(); len(needs) > 0 {
		return decision{needs: needs}, nil
	}
	p := &plan{takesBack: true}
	if !written {
		known := d.facts.blocks[d.block]
		block := known.value.Clone()
		block.StampReleased(d.ordinals)
		block.Release(d.ordinals, d.facts.now, d.facts.cooldown())
		p.blocks = []edit{releasedBlock(block, known.revision)}
	}
	d.countDown(p)
	d.last, d.blockDone = p, written

	return decision{final: p}, nil
}

// blockWritten reports whether the last plan, or one before it, has released
// the addresses, although it is not known to be complete.
func (d *addressRelease) blockWritten() bool {
	switch {
	case d.last == nil:
		return false
	case d.blockDone || d.last.outcome.blocksDone:
		return true
	case !d.last.outcome.uncertain:
		return false
	}
	block := d.facts.blocks[d.block].value
	return !slices.ContainsFunc(d.ordinals, func(ordinal int) bool {
		return block != nil && block.HolderOf(ordinal) != nil && block.HolderOf(ordinal).ReleasedAt.IsZero()
	})
}

// inspect decides which ordinals are to be released. The first request that
// does not fit fails them all.
func (d *addressRelease) inspect() error {
	d.unallocated, d.ordinals, d.counts = nil, nil, map[string]int{}
	block := d.facts.blocks[d.block].value
	for _, r := range d.releases {
		var holder *model.Attribute
		ordinal := 0
		if block != nil {
			ordinal, _ = block.Ordinal(r.Addr)
			holder = block.HolderOf(ordinal)
		}
		switch {
		case holder == nil || !holder.ReleasedAt.IsZero():
			d.unallocated = append(d.unallocated, r.Addr)
		case r.Sequence != nil && *r.Sequence != block.SequenceForAllocation[ordinal]:
			return fmt.Errorf("releasing %s: its sequence number is %d, not %d: %w", r.Addr, block.SequenceForAllocation[ordinal], *r.Sequence, datastore.ErrConflict)
		case r.HandleID != "" && model.HandleIDBefore(r.HandleID) != model.HandleIDBefore(holder.HandleID):
			return fmt.Errorf("releasing %s: its handle is %q, not %q: %w", r.Addr, holder.HandleID, r.HandleID, datastore.ErrConflict)
		case !slices.Contains(d.ordinals, ordinal):
			d.ordinals = append(d.ordinals, ordinal)
			d.counts[model.HandleIDBefore(holder.HandleID)]++
		}
	}
	slices.Sort(d.ordinals)
	return nil
}

// handleIDs are the handles to count down; the Windows reservation has none.
func (d *addressRelease) handleIDs() []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(d.counts)) {
		if id != "" && !strings.EqualFold(id, model.ReserveHandleID) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (d *addressRelease) unreadHandles() []datastore.Query {
	var queries []datastore.Query
	for _, id := range d.handleIDs() {
		if _, known := d.facts.handles[id]; !known {
			queries = append(queries, datastore.Get{Key: model.HandleKey{ID: id}})
		}
	}
	return queries
}

// stillHeld is how many addresses of the block a handle holds after the
// release.
func (d *addressRelease) stillHeld(id string) int {
	block := d.facts.blocks[d.block].value
	if block == nil {
		return 0
	}
	held := slices.DeleteFunc(block.Held(id), func(ordinal int) bool { return slices.Contains(d.ordinals, ordinal) })
	return len(held)
}

// countDown lessens the handles. One that does not count the block, or too
// little, is only kept from falling below nothing.
func (d *addressRelease) countDown(p *plan) {
	for _, id := range d.handleIDs() {
		known := d.facts.handles[id]
		if d.last != nil && d.facts.applied(d.last, id) {
			continue
		}
		if known.value == nil || known.value.Blocks[d.block] == 0 {
			p.guards = append(p.guards, edit{key: model.HandleKey{ID: id}, revision: known.revision})
			continue
		}
		left := lessened(known.value, map[netip.Prefix]int{d.block: d.counts[id]})
		if held := d.stillHeld(id); held > left.Blocks[d.block] {
			left.Blocks[d.block] = held // it counted too little
		}
		p.handles = append(p.handles, handleEdit(id, left, known.revision))
	}
}
