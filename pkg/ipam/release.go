package ipam

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// ReleaseQueries are the queries of ReleaseByHandle's first read.
func ReleaseQueries(ids ...string) []datastore.Query {
	queries := []datastore.Query{datastore.Get{Key: model.IPAMConfigKey{}}}
	for _, id := range handleIDs(ids) {
		queries = append(queries, datastore.Get{Key: model.HandleKey{ID: id}})
	}
	return queries
}

// handleIDs cuts what old writers left behind a carriage return, and drops
// duplicates.
func handleIDs(ids []string) []string {
	var out []string
	for _, id := range ids {
		if id = model.HandleIDBefore(id); id != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// ReleaseByHandle releases every address of the handles and removes these
// (IPAM contract 6). A handle that does not exist has nothing to release. A
// handle that counts more than its blocks hold disappears as well.
func (a *Allocator) ReleaseByHandle(ctx context.Context, ids ...string) error {
	e := a.engine("")
	if err := e.read(ctx, ReleaseQueries(ids...)...); err != nil {
		return err
	}
	d := &handleRelease{facts: e.facts, ids: handleIDs(ids), touched: map[netip.Prefix]bool{}}
	if err := e.run(ctx, d.decide); err != nil {
		return err
	}
	e.returnUnselected(ctx, sortedPrefixes(d.touched))
	return nil
}

// handleRelease is the decision what to write for a release by handle.
type handleRelease struct {
	facts   *facts
	ids     []string
	touched map[netip.Prefix]bool
	// found are blocks known to hold a handle's addresses, whatever the
	// handle says.
	found map[string][]netip.Prefix
	// stale tells which allocations are to be released; nil: all.
	stale func(*model.Attribute) bool
}

func (d *handleRelease) decide() (decision, error) {
	if needs := d.unread(); len(needs) > 0 {
		return decision{needs: needs}, nil
	}
	draft := &releaseDraft{edited: map[netip.Prefix]*model.Block{}}
	more := slices.ContainsFunc(d.ids, func(id string) bool { return !d.draftHandle(draft, id) })
	p := &plan{takesBack: true, handles: draft.handles}
	d.addBlocks(p, draft.edited)
	return decision{final: p, more: more}, nil
}

// unread are the handles and blocks that have to be read before anything can
// be decided.
func (d *handleRelease) unread() []datastore.Query {
	var needs []datastore.Query
	for _, id := range d.ids {
		handle, known := d.facts.handles[id]
		if !known {
			needs = append(needs, datastore.Get{Key: model.HandleKey{ID: id}})
		}
		for _, cidr := range d.blocksOf(id, handle.value) {
			if !d.facts.known(cidr) {
				needs = append(needs, datastore.Get{Key: model.BlockKey{CIDR: cidr}})
			}
		}
	}
	return distinct(needs)
}

// releaseDraft is what one write of a release is to hold.
type releaseDraft struct {
	// edited blocks; nil: one that must stay as it was.
	edited  map[netip.Prefix]*model.Block
	handles []edit
	// bytes is what the edited blocks weigh.
	bytes int
}

// room reports whether so many objects more may be written.
func (w *releaseDraft) room(objects int) bool {
	return len(w.edited)+len(w.handles)+objects <= maxMutations
}

// takes reports whether a block fits beside what there is, and a handle beside
// it. Some block always does.
func (w *releaseDraft) takes(cidr netip.Prefix, block *model.Block) bool {
	_, present := w.edited[cidr]
	return present || len(w.edited) == 0 || w.room(2) && w.bytes+weight(block) <= maxBytes
}

// draftHandle adds the release of a handle. It reports false if the write is
// full; then what it holds is safe by itself: the handle keeps its count of the
// blocks that are left.
func (d *handleRelease) draftHandle(draft *releaseDraft, id string) (complete bool) {
	if !draft.room(1) {
		return false
	}
	handle := d.facts.handles[id]
	left := &model.Handle{}
	if handle.value != nil {
		left = handle.value.Clone()
	}
	complete = true
	for _, cidr := range d.blocksOf(id, left) {
		if !d.concerns(cidr, id, left) {
			continue
		}
		if complete = draft.takes(cidr, d.facts.blocks[cidr].value); !complete {
			break
		}
		if _, present := draft.edited[cidr]; !present {
			draft.bytes += weight(d.facts.blocks[cidr].value)
		}
		draft.edited[cidr] = d.free(draft.edited[cidr], cidr, id, left)
	}
	if handle.value != nil && (len(left.Blocks) == 0 || !maps.Equal(left.Blocks, handle.value.Blocks)) {
		draft.handles = append(draft.handles, handleEdit(id, left, handle.revision))
	}
	return complete
}

// blocksOf lists the blocks that may hold a handle's addresses, in the order
// of their text.
func (d *handleRelease) blocksOf(id string, handle *model.Handle) []netip.Prefix {
	all := map[netip.Prefix]bool{}
	if handle != nil {
		for cidr := range handle.Blocks {
			all[cidr] = true
		}
	}
	for _, cidr := range d.found[id] {
		all[cidr] = true
	}
	return sortedPrefixes(all)
}

// concerns reports whether there is anything to do about a block: the handle
// counts it, or it holds addresses that are to be released.
func (d *handleRelease) concerns(cidr netip.Prefix, id string, handle *model.Handle) bool {
	if _, counted := handle.Blocks[cidr]; counted {
		return true
	}
	block := d.facts.blocks[cidr].value
	return block != nil && slices.ContainsFunc(block.Held(id), func(ordinal int) bool {
		return d.stale == nil || d.stale(block.HolderOf(ordinal))
	})
}

func distinct(queries []datastore.Query) []datastore.Query {
	seen := map[datastore.Query]bool{}
	return slices.DeleteFunc(queries, func(query datastore.Query) bool {
		known := seen[query]
		seen[query] = true
		return known
	})
}

func handleEdit(id string, handle *model.Handle, revision datastore.Revision) edit {
	key := model.HandleKey{ID: id}
	if len(handle.Blocks) == 0 {
		return edit{key: key, revision: revision}
	}
	return edit{key, handle, revision}
}

// free releases a handle's addresses in a block and takes the block from the
// handle, whatever that counted. It returns nil if the block need not be
// written.
func (d *handleRelease) free(edited *model.Block, cidr netip.Prefix, id string, left *model.Handle) *model.Block {
	block := edited
	if block == nil {
		block = d.facts.blocks[cidr].value
	}
	delete(left.Blocks, cidr)
	if block == nil {
		return nil
	}
	held := block.Held(id)
	if d.stale != nil {
		all := len(held)
		held = slices.DeleteFunc(held, func(ordinal int) bool { return !d.stale(block.HolderOf(ordinal)) })
		if kept := all - len(held); kept > 0 && left.Blocks != nil {
			left.Blocks[cidr] = kept
		}
	}
	if len(held) == 0 {
		return edited
	}
	if edited == nil {
		block = block.Clone()
	}
	block.Release(held, d.facts.now, d.facts.cooldown())
	return block
}

// addBlocks adds the edited blocks to the plan; those with nothing to release
// must stay as they were.
func (d *handleRelease) addBlocks(p *plan, edited map[netip.Prefix]*model.Block) {
	for cidr, block := range edited {
		revision := d.facts.blocks[cidr].revision
		if block == nil {
			p.guards = append(p.guards, edit{key: model.BlockKey{CIDR: cidr}, revision: revision})
			continue
		}
		d.touched[cidr] = true
		p.blocks = append(p.blocks, releasedBlock(block, revision))
	}
	slices.SortFunc(p.blocks, func(a, b edit) int { return strings.Compare(a.key.Path(), b.key.Path()) })
}

// releasedBlock deletes a block that is empty and has no owner, and writes any
// other.
func releasedBlock(block *model.Block, revision datastore.Revision) edit {
	key := model.BlockKey{CIDR: block.CIDR}
	if block.Empty() && block.Affinity == "" {
		return edit{key: key, revision: revision}
	}
	block.Stamp()
	return edit{key, block, revision}
}
