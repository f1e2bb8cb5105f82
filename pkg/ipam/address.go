package ipam

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// AddressRequest asks for one certain address (IPAM contract 6, AssignIP).
type AddressRequest struct {
	Addr     netip.Addr
	Host     string
	HandleID string
	// Attributes tell the owner: node, timestamp, and the pod if there is one.
	Attributes map[string]string
	// Reserve is kept free in the address' block if that has to be claimed.
	Reserve *Reservation
	// Use is what the address is for; empty: not stated, any pool will do.
	Use string
	// RequireStrictAffinity refuses the request unless the cluster's strict
	// affinity is on (IPAM contract 8.1).
	RequireStrictAffinity bool
	// MaxBlocks limits the blocks of the host beside the cluster's own limit;
	// 0: no limit.
	MaxBlocks int
	// OncePerFamily refuses the request with ErrHandleHolds if the handle
	// holds an address of the family.
	OncePerFamily bool
	// Before is as in Request.
	Before Claims
}

// AddressQueries are the queries of AssignAddress's first read.
func AddressQueries(r AddressRequest) []datastore.Query {
	queries := []datastore.Query{
		datastore.Get{Key: model.IPAMConfigKey{}},
		datastore.ListResources{Kind: model.KindIPPool},
		ownAffinities(r.Host, model.FamilyOf(r.Addr)),
	}
	if r.HandleID != "" {
		queries = append(queries, datastore.Get{Key: model.HandleKey{ID: r.HandleID}})
	}
	return queries
}

// AssignAddress gives one certain address to a request and returns it with the
// prefix length of its block. Selectors, assignment mode and reservations of
// the cluster do not matter; the limit of blocks does.
func (a *Allocator) AssignAddress(ctx context.Context, r AddressRequest) (netip.Prefix, error) {
	e := a.engine(r.Host)
	e.loadChecked()
	if err := e.read(ctx, AddressQueries(r)...); err != nil {
		return netip.Prefix{}, err
	}
	e.noteMissed(r.Before, r.Host, model.FamilyOf(r.Addr))
	d := &addressAssignment{request: &r, facts: e.facts, transactional: a.store.Transactional()}
	if err := e.run(ctx, d.decide); err != nil {
		if undone := e.undo(ctx, r.HandleID, r.Attributes); undone != nil {
			err = errors.Join(err, undone)
		}
		return netip.Prefix{}, err
	}
	e.storeChecked()
	return netip.PrefixFrom(r.Addr, d.block.Bits()), nil
}

// addressAssignment is the decision for one certain address.
type addressAssignment struct {
	request       *AddressRequest
	facts         *facts
	transactional bool
	block         netip.Prefix
	once          once
}

func (d *addressAssignment) decide() (decision, error) {
	p, err := d.pool()
	if err != nil {
		return decision{}, err
	}
	if d.request.OncePerFamily {
		needs, err := d.once.check(d.facts, d.request.HandleID, model.FamilyOf(d.request.Addr))
		if err != nil || len(needs) > 0 {
			return decision{needs: needs}, err
		}
	}
	d.block = p.blockOf(d.request.Addr)
	if _, done := d.facts.obtained[d.block]; done {
		return decision{final: d.confirm()}, nil
	}
	family := model.FamilyOf(d.request.Addr)
	own := ownAffinities(d.request.Host, family)
	if _, known := d.facts.answered[own]; !known || d.facts.outdated[own] {
		return decision{needs: []datastore.Query{own}}, nil
	}
	if needs := d.unread(p); len(needs) > 0 {
		return decision{needs: needs}, nil
	}
	if d.stale() {
		return decision{side: releaseAffinity(d.facts, d.facts.affinityKey(d.block))}, nil
	}
	draft := newDraft(d.facts, d.request.HandleID, d.request.Attributes)
	b, err := d.take(draft, p)
	if err != nil {
		return decision{}, err
	}
	if err := b.value.AllocateAddress(d.request.Addr, draft.holder); err != nil {
		return decision{}, cnierr.New(cnierr.AddressTaken, "assigning %s: %w; ask for another address, \"calico-ipam show --ip=%s\" tells who holds this one",
			d.request.Addr, err, d.request.Addr)
	}
	b.taken = []netip.Addr{d.request.Addr}
	return decision{final: draft.plan()}, nil
}

// stale reports whether this host has an affinity for the block of another
// owner, be it of a claim just lost (IPAM contract 3.2 row 2).
func (d *addressAssignment) stale() bool {
	block := d.facts.blocks[d.block].value
	return block != nil && block.Affinity != d.facts.owner() && d.facts.affinities[d.facts.affinityKey(d.block)].value != nil
}

// confirm plans what an engine without transactions may have left undone once
// the address was taken.
func (d *addressAssignment) confirm() *plan {
	draft := newDraft(d.facts, d.request.HandleID, d.request.Attributes)
	if d.facts.unconfirmed(d.block) {
		draft.own(d.block)
	}
	return draft.plan()
}

func (d *addressAssignment) pool() (pool, error) {
	if d.request.RequireStrictAffinity && !d.facts.config.StrictAffinity {
		return pool{}, errStrictAffinity()
	}
	p, ok := poolOf(enabled(d.facts.pools), d.request.Addr)
	if !ok {
		return pool{}, cnierr.New(cnierr.AddressOutsidePools, "assigning %s: The provided IP address is not in a configured pool; ask for an address of an enabled pool", d.request.Addr)
	}
	if d.request.Use != "" && !p.Allows(d.request.Use) {
		return pool{}, cnierr.New(cnierr.AddressOutsidePools, "IP address %s is in IP pool %q, which is not allowed for use %q (allowedUses: [%s]); ask for an address of a pool that allows it",
			d.request.Addr, p.Metadata.Name, d.request.Use, strings.Join(p.AllowedUses, " "))
	}
	return p, nil
}

// unread are the questions for the address' block and for what else may exist
// in its place: blocks of another size.
func (d *addressAssignment) unread(p pool) []datastore.Query {
	family := model.FamilyOf(d.request.Addr)
	var queries []datastore.Query
	if !d.facts.known(d.block) {
		queries = append(queries, datastore.Get{Key: model.BlockKey{CIDR: d.block}})
	}
	if d.transactional {
		return append(queries, d.unreadRanges()...)
	}
	if len(queries) == 0 && d.facts.blocks[d.block].value == nil && !d.facts.knowsLeftovers(p) {
		queries = append(queries, allKeys(family))
	}
	return queries
}

func (d *addressAssignment) unreadRanges() []datastore.Query {
	var queries []datastore.Query
	for _, query := range groupQueries(groupOf(d.block)) {
		answer, answered := d.facts.answered[query]
		if answered && answer.More {
			whole := query.(datastore.ListBlocks)
			whole.Limit = 0
			query = whole
			_, answered = d.facts.answered[query]
		}
		if !answered {
			queries = append(queries, query)
		}
	}
	return queries
}

// take brings the address' block into the draft: an existing one, of whoever
// if strict affinity is off, or a new one within the limit.
func (d *addressAssignment) take(draft *draft, p pool) (*blockDraft, error) {
	block := d.facts.blocks[d.block].value
	switch {
	case block == nil:
		return d.claim(draft, p)
	case block.Affinity == d.facts.owner():
		return draft.own(d.block), nil
	case d.facts.config.StrictAffinity:
		return nil, cnierr.New(cnierr.AddressTaken, "assigning %s under strict affinity: %w; ask for an address of a block that this host owns",
			d.request.Addr, block.CheckOwner(d.facts.owner()))
	}
	return draft.existing(d.block), nil
}

func (d *addressAssignment) claim(draft *draft, p pool) (*blockDraft, error) {
	if d.facts.census.overlaps(d.block) {
		return nil, cnierr.New(cnierr.AddressTaken, "assigning %s: its block %s overlaps a block of another size, which an earlier pool left behind; ask for an address elsewhere until that block is empty and gone", d.request.Addr, d.block)
	}
	if d.request.Reserve.Size() > 1<<(d.block.Addr().BitLen()-d.block.Bits()) {
		return nil, cnierr.New(cnierr.NoPool, "assigning %s: blocks of %s are too small for the reserved addresses; ask for an address of a pool with larger ones", d.request.Addr, p)
	}
	limit := blockLimit(d.request.MaxBlocks, d.facts.config.MaxBlocksPerHost)
	if owned := d.owned(); owned >= limit && d.facts.affinities[d.facts.affinityKey(d.block)].value == nil {
		return nil, cnierr.New(cnierr.BlockLimit, "assigning %s: cannot allocate new block due to per host block limit: host %s has %d of at most %d blocks",
			d.request.Addr, d.request.Host, owned, limit)
	}
	return draft.claimed(d.block, p, d.request.Reserve), nil
}

// owned counts the host's blocks in pools that serve the request's use.
func (d *addressAssignment) owned() int {
	count := 0
	for _, cidr := range d.facts.own(model.FamilyOf(d.request.Addr)) {
		p, ok := poolOf(enabled(d.facts.pools), cidr.Addr())
		if ok && p.BlockSize == cidr.Bits() && (d.request.Use == "" || p.Allows(d.request.Use)) {
			count++
		}
	}
	return count
}
