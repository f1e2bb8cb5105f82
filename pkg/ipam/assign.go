package ipam

import (
	"context"
	"errors"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// AssignQueries are the queries of Assign's first read, so that a caller can
// ask them together with its own (datastore.Prefetch).
func AssignQueries(r Request) []datastore.Query {
	queries := []datastore.Query{
		datastore.Get{Key: model.IPAMConfigKey{}},
		datastore.ListResources{Kind: model.KindIPReservation},
		datastore.Get{Key: model.ResourceKey{Kind: model.KindNode, Name: r.Host}},
		datastore.ListResources{Kind: model.KindIPPool},
	}
	for _, family := range r.families() {
		queries = append(queries, ownAffinities(r.Host, family))
	}
	if r.HandleID != "" {
		queries = append(queries, datastore.Get{Key: model.HandleKey{ID: r.HandleID}})
	}
	return queries
}

// Assign gives a request its addresses (IPAM contract 4). Both families are
// decided first and, if the engine has transactions, written in one.
//
// A request for one family that gets fewer addresses than it wanted is no
// error unless a limit was in the way; what it got is in the result even then.
// A request for both families gets everything or nothing: if one is short,
// that is the error and no address is kept.
func (a *Allocator) Assign(ctx context.Context, r Request) (Result, error) {
	e := a.engine(r.Host)
	e.fetch = e.readPassing
	e.loadChecked()
	if err := e.read(ctx, AssignQueries(r)...); err != nil {
		return Result{}, err
	}
	e.noteMissed(r.Before, r.Host, r.families()...)
	d := &assignment{request: &r, facts: e.facts, transactional: a.store.Transactional()}
	err := e.run(ctx, d.decide)
	e.storeChecked()
	failed := err != nil
	if !failed {
		err = d.refused
	}
	if err != nil && (failed || len(r.families()) > 1) {
		if undone := e.undo(ctx, r.HandleID, r.Attributes); undone != nil {
			err = errors.Join(err, undone)
		}
		d.result.forget()
	}
	return d.result, err
}

// assignment is the decision for all families of a request.
type assignment struct {
	request       *Request
	facts         *facts
	transactional bool
	result        Result
	// refused is why the request got less than it wanted, although what it
	// got may be written.
	refused error
	once    once
}

func (d *assignment) decide() (decision, error) {
	if err := d.check(); err != nil {
		return decision{}, err
	}
	if d.request.OncePerFamily {
		needs, err := d.once.check(d.facts, d.request.HandleID, d.request.families()...)
		if err != nil || len(needs) > 0 {
			return decision{needs: needs}, err
		}
	}
	d.result, d.refused = Result{}, nil
	var out decision
	draft := newDraft(d.facts, d.request.HandleID, d.request.Attributes)
	for _, family := range d.request.families() {
		if _, known := d.facts.answered[ownAffinities(d.request.Host, family)]; !known {
			out.needs = append(out.needs, ownAffinities(d.request.Host, family))
			continue
		}
		s := d.search(family, draft)
		if err := s.run(); err != nil && !s.waiting() {
			d.refused = err
		}
		s.result.summarize(d.request.reserve(family))
		out.needs = append(out.needs, s.needs...)
		if out.side == nil {
			out.side = s.side
		}
		out.more = out.more || s.more
		if d.refused != nil {
			break
		}
	}
	if len(out.needs) == 0 && out.side == nil {
		out.final = d.final(draft, out.more)
	}
	return out, nil
}

func (d *assignment) search(family model.Family, draft *draft) *search {
	return &search{
		request: d.request, family: family, facts: d.facts, draft: draft,
		transactional: d.transactional, result: d.result.assignment(family),
	}
}

// check refuses what no block can help.
func (d *assignment) check() error {
	if d.request.RequireStrictAffinity && !d.facts.config.StrictAffinity {
		return errStrictAffinity()
	}
	if d.facts.node == nil {
		return cnierr.New(cnierr.NodeUnknown, "resource does not exist: Node(%s): the node name is wrong or the node is not registered", d.request.Host)
	}
	return nil
}

func errStrictAffinity() error {
	return cnierr.New(cnierr.StrictAffinityNeeded, "global strict affinity should not be false for Windows node: set strictAffinity in the IPAM configuration")
}

// final drops everything if one of two families came out short.
func (d *assignment) final(draft *draft, more bool) *plan {
	if len(d.request.families()) > 1 && !more {
		if d.refused == nil {
			d.refused = d.result.Err()
		}
		if d.refused != nil {
			return nil
		}
	}
	return draft.plan()
}

// forget empties the result of addresses that are not kept.
func (r *Result) forget() { r.IPv4.drop(); r.IPv6.drop() }

func (a *Assignment) drop() { a.Addresses, a.Pools = nil, nil }
