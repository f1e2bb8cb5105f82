package ipam

import (
	"context"
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
	e.returnUnselected(ctx, d.touched)
	return nil
}

// handleRelease is the decision what to write for a release by handle.
type handleRelease struct {
	facts   *facts
	ids     []string
	touched map[netip.Prefix]bool
}

func (d *handleRelease) decide() (decision, error) {
	var out decision
	p := &plan{takesBack: true}
	edited := map[netip.Prefix]*model.Block{}
	for _, id := range d.ids {
		handle := d.facts.handles[id]
		if handle.value == nil {
			continue
		}
		emptied := handle.value.Clone()
		for _, cidr := range blocksOf(handle.value) {
			if !d.facts.known(cidr) {
				out.needs = append(out.needs, datastore.Get{Key: model.BlockKey{CIDR: cidr}})
				continue
			}
			if out.more = out.more || len(edited) >= maxMutations/2; out.more {
				break
			}
			edited[cidr] = d.facts.freed(edited[cidr], cidr, id)
			delete(emptied.Blocks, cidr)
		}
		p.handles = append(p.handles, handleEdit(id, emptied, handle.revision))
	}
	if len(out.needs) > 0 {
		return decision{needs: distinct(out.needs)}, nil
	}
	d.addBlocks(p, edited)
	out.final = p
	return out, nil
}

// blocksOf lists a handle's blocks in the order of their text.
func blocksOf(handle *model.Handle) []netip.Prefix {
	var out []netip.Prefix
	for cidr := range handle.Blocks {
		out = append(out, cidr)
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func distinct(queries []datastore.Query) []datastore.Query {
	var out []datastore.Query
	for _, query := range queries {
		if !slices.Contains(out, query) {
			out = append(out, query)
		}
	}
	return out
}

func handleEdit(id string, handle *model.Handle, revision datastore.Revision) edit {
	key := model.HandleKey{ID: id}
	if len(handle.Blocks) == 0 {
		return edit{key: key, revision: revision}
	}
	return edit{key, handle, revision}
}

// freed returns the block without the handle's addresses; nil if nothing has
// to be written.
func (f *facts) freed(edited *model.Block, cidr netip.Prefix, id string) *model.Block {
	block := edited
	if block == nil {
		block = f.blocks[cidr].value
	}
	if block == nil {
		return nil
	}
	held := block.Held(id)
	if len(held) == 0 {
		return edited
	}
	if edited == nil {
		block = block.Clone()
	}
	block.Release(held, f.now, f.cooldown())
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

// Release asks for one address to be given back.
type Release struct {
	Addr netip.Addr
	// HandleID must match the holder's; empty: any.
	HandleID string
	// Sequence must match the allocation's sequence number; nil: any.
	Sequence *uint64
}

// ReleaseAddresses x.
func (a *Allocator) ReleaseAddresses(ctx context.Context, releases []Release) (unallocated []netip.Addr, released []Release, err error) {
	return nil, nil, nil
}

func (e *engine) returnUnselected(ctx context.Context, touched map[netip.Prefix]bool) {}
