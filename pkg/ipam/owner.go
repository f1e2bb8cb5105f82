package ipam

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// OwnerChange replaces an owner of addresses that a handle holds.
type OwnerChange struct {
	Addresses []netip.Addr
	// Alternate: the alternate owner is replaced, not the active one.
	Alternate bool
	Owner     map[string]string
}

// ChangeOwner has decide look at what a handle holds and carries its answer
// out, for all addresses together. If somebody else writes in between, decide
// is asked again. A handle that does not exist holds nothing.
func (a *Allocator) ChangeOwner(ctx context.Context, id string, decide func(Holding) (OwnerChange, error)) error {
	id = model.HandleIDBefore(id)
	e := a.engine("")
	e.fetch = e.readPassing
	if err := e.read(ctx, ReleaseQueries(id)...); err != nil {
		return err
	}
	d := &ownerChange{ownership: ownership{facts: e.facts, id: id}, ask: decide}
	return e.run(ctx, d.decide)
}

// ownership is what the decisions about owners have in common.
type ownership struct {
	facts *facts
	id    string
}

// unread are the handle's blocks that have not been read yet.
func (o *ownership) unread() []datastore.Query {
	var queries []datastore.Query
	for _, cidr := range o.blocks() {
		if !o.facts.known(cidr) {
			queries = append(queries, datastore.Get{Key: model.BlockKey{CIDR: cidr}})
		}
	}
	return queries
}

func (o *ownership) blocks() []netip.Prefix {
	if handle := o.facts.handles[o.id].value; handle != nil {
		return sortedPrefixes(handle.Blocks)
	}
	return nil
}

// plan writes the blocks in which change changes something, provided that the
// others and the handle stay as they are.
func (o *ownership) plan(change func(*model.Block) bool) *plan {
	p := &plan{takesBack: true}
	for _, cidr := range o.blocks() {
		known := o.facts.blocks[cidr]
		if known.value == nil {
			continue
		}
		if block := known.value.Clone(); change(block) {
			p.blocks = append(p.blocks, writtenBlock(block, known.revision))
			continue
		}
		p.guards = append(p.guards, blockGuard(cidr, known.revision))
	}
	p.guards = append(p.guards, handleGuard(o.id, o.facts.handles[o.id].revision))
	return p
}

func writtenBlock(block *model.Block, revision datastore.Revision) edit {
	block.Stamp()
	return edit{model.BlockKey{CIDR: block.CIDR}, block, revision}
}

func blockGuard(cidr netip.Prefix, revision datastore.Revision) edit {
	return edit{key: model.BlockKey{CIDR: cidr}, revision: revision}
}

func handleGuard(id string, revision datastore.Revision) edit {
	return edit{key: model.HandleKey{ID: id}, revision: revision}
}

// ownerChange is the decision what to write for an OwnerChange.
type ownerChange struct {
	ownership
	ask    func(Holding) (OwnerChange, error)
	change OwnerChange
}

func (d *ownerChange) decide() (decision, error) {
	if needs := d.unread(); len(needs) > 0 {
		return decision{needs: needs}, nil
	}
	var err error
	if d.change, err = d.ask(d.facts.holding(d.id)); err != nil {
		return decision{}, err
	}
	return decision{final: d.plan(func(block *model.Block) bool {
		ordinals := slices.DeleteFunc(block.Held(d.id), func(ordinal int) bool {
			return !slices.Contains(d.change.Addresses, block.Addr(ordinal)) ||
				maps.Equal(d.current(block.HolderOf(ordinal)), d.change.Owner)
		})
		block.SetOwner(ordinals, d.change.Alternate, d.change.Owner)
		return len(ordinals) > 0
	})}, nil
}

func (d *ownerChange) current(holder *model.Attribute) map[string]string {
	if d.change.Alternate {
		return holder.AlternateOwner
	}
	return holder.Owner
}

// IsPod reports whether an owner map names a pod.
func IsPod(owner map[string]string, namespace, pod string) bool {
	return pod != "" && owner["pod"] == pod && owner["namespace"] == namespace
}

// Disowning takes a pod's name off the addresses of a handle.
type Disowning struct {
	HandleID string
	// Namespace and Pod name the pod; without a name nobody's is taken off.
	Namespace, Pod string
	// Release: the addresses are given back, and the handle goes, unless
	// another owner remains.
	Release bool
}

// Disown carries a Disowning out (IPAM contract 9): per address the pod's name
// is cleared as the active owner or, if it is not that, as the alternate one.
// It reports whether the addresses were released.
func (a *Allocator) Disown(ctx context.Context, o Disowning) (released bool, err error) {
	released, wrote, err := a.disown(ctx, o)
	if err == nil && wrote && o.Release && !a.store.Transactional() {
		// The other owner may have left meanwhile, thinking that we remain.
		o.Pod = ""
		released, _, err = a.disown(ctx, o)
	}
	return released, err
}

// disown also reports whether it has taken the pod's name off, and no more.
func (a *Allocator) disown(ctx context.Context, o Disowning) (released, wrote bool, err error) {
	e := a.engine("")
	if err := e.read(ctx, ReleaseQueries(o.HandleID)...); err != nil {
		return false, false, err
	}
	id := model.HandleIDBefore(o.HandleID)
	d := &disowning{
		ownership: ownership{facts: e.facts, id: id}, request: o,
		release: handleRelease{facts: e.facts, ids: []string{id}, touched: map[netip.Prefix]bool{}},
	}
	if err := e.run(ctx, d.decide); err != nil {
		return false, false, err
	}
	e.returnUnselected(ctx, sortedPrefixes(d.release.touched))
	return d.released, d.wrote, nil
}

// disowning is the decision what to write for a Disowning.
type disowning struct {
	ownership
	request  Disowning
	release  handleRelease
	released bool
	wrote    bool
}

func (d *disowning) decide() (decision, error) {
	if needs := d.unread(); len(needs) > 0 {
		return decision{needs: needs}, nil
	}
	if d.released = d.request.Release && !d.owned(); d.released {
		return d.release.decide()
	}
	p := d.plan(func(block *model.Block) bool {
		active, alternate := d.named(block)
		block.SetOwner(active, false, nil)
		block.SetOwner(alternate, true, nil)
		return len(active)+len(alternate) > 0
	})
	d.wrote = d.wrote || len(p.blocks) > 0
	return decision{final: p}, nil
}

// named are the ordinals of a block whose active owner is the pod, and the
// others whose alternate owner is.
func (d *disowning) named(block *model.Block) (active, alternate []int) {
	for _, ordinal := range block.Held(d.id) {
		holder := block.HolderOf(ordinal)
		switch {
		case IsPod(holder.Owner, d.request.Namespace, d.request.Pod):
			active = append(active, ordinal)
		case IsPod(holder.AlternateOwner, d.request.Namespace, d.request.Pod):
			alternate = append(alternate, ordinal)
		}
	}
	return active, alternate
}

// owned reports whether any address has an owner beside the pod.
func (d *disowning) owned() bool {
	for _, cidr := range d.blocks() {
		block := d.facts.blocks[cidr].value
		if block == nil {
			continue
		}
		active, alternate := d.named(block)
		for _, ordinal := range block.Held(d.id) {
			holder := block.HolderOf(ordinal)
			if len(holder.Owner) > 0 && !slices.Contains(active, ordinal) ||
				len(holder.AlternateOwner) > 0 && !slices.Contains(alternate, ordinal) {
				return true
			}
		}
	}
	return false
}
