package ipam

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/model"
)

// collectHandles is how many handles are read and released at once: with a few
// blocks they fit one transaction.
const collectHandles = maxMutations - 6

// collection is one garbage collection. What it decides on is read and written
// for many handles at once: a block once for all that hold addresses of it.
type collection struct {
	*engine
	request *GCRequest
	// outcome is how the release of each handle ended.
	outcome map[string]error
}

// ReleaseStale releases the addresses and handles of containers that are not
// attached any more: those in the host's own blocks, and those that the notes
// lead to. It goes on after a failure, returns all failures, those of the same
// cause as one, and the ids that are done.
func (a *Allocator) ReleaseStale(ctx context.Context, r GCRequest) (done []string, err error) {
	c := &collection{engine: a.engine(r.Host), request: &r, outcome: map[string]error{}}
	failures := c.searchStale(ctx, &r, func(batch *staleBatch) { c.releaseBatch(ctx, batch) })
	for _, id := range slices.Sorted(maps.Keys(c.outcome)) {
		if err := c.outcome[id]; err != nil {
			c.log.Warn("stale addresses were not released", "handle", id, "error", err)
			failures = append(failures, cnierr.Failure{Doing: "releasing the stale addresses of", Object: id, Err: err})
			continue
		}
		done = append(done, id)
	}
	return done, errors.Join(cnierr.Group(failures)...)
}

// releaseBatch releases the handles of a batch. One that failed in an earlier
// batch is not tried again.
func (c *collection) releaseBatch(ctx context.Context, batch *staleBatch) {
	ids := slices.DeleteFunc(slices.Clone(batch.ids), func(id string) bool { return c.outcome[id] != nil })
	for ids := range slices.Chunk(ids, collectHandles) {
		c.note(ids)
		e := c.engine
		if batch.blind {
			e = c.Allocator.engine(c.request.Host)
		}
		c.settleOrDivide(ctx, ids, batch, c.release(ctx, e, ids, batch))
		// Only the batch's own blocks are kept: others may be any number.
		clear(c.facts.handles)
		maps.DeleteFunc(c.facts.blocks, func(cidr netip.Prefix, _ object[model.Block]) bool {
			return !slices.Contains(batch.own, cidr)
		})
	}
}

// note has those noted that are about to be released and have no note.
func (c *collection) note(ids []string) {
	if c.request.Note == nil || c.store.Transactional() {
		return
	}
	for _, id := range ids {
		if !slices.Contains(c.request.NoteIDs, id) {
			c.request.Note(id)
		}
	}
}

// settleOrDivide records the outcome of a release. When it failed, halves are
// tried on their own until those that cannot be released stand alone: they must
// not keep the others.
func (c *collection) settleOrDivide(ctx context.Context, ids []string, batch *staleBatch, err error) {
	if err == nil || len(ids) == 1 || ctx.Err() != nil {
		for _, id := range ids {
			c.outcome[id] = err
		}
		return
	}
	for half := range slices.Chunk(ids, (len(ids)+1)/2) {
		c.settleOrDivide(ctx, half, batch, c.release(ctx, c.Allocator.engine(c.request.Host), half, batch))
	}
}

// release releases handles, on what the engine knows already.
func (c *collection) release(ctx context.Context, e *engine, ids []string, batch *staleBatch) error {
	if e != c.engine {
		if err := e.read(ctx, ReleaseQueries(ids...)...); err != nil {
			return err
		}
	}
	e.facts.now = e.now() // addresses cool down from their release on
	d := &handleRelease{
		facts: e.facts, ids: ids, touched: map[netip.Prefix]bool{}, found: batch.found, stale: c.request.old,
	}
	if err := e.run(ctx, d.decide); err != nil {
		return err
	}
	e.returnUnselected(ctx, sortedPrefixes(d.touched))
	return nil
}

// StaleContainer is a container whose addresses ReleaseStale would release.
type StaleContainer struct {
	HandleID string
	// Owners are what its allocations say of whom they are for, in the order of
	// the addresses, each once.
	Owners []map[string]string
}

// StaleContainers returns what ReleaseStale would release, in the order of the
// handles, and releases nothing. What it found before a failure is returned
// with it.
func (a *Allocator) StaleContainers(ctx context.Context, r GCRequest) ([]StaleContainer, error) {
	e := a.engine(r.Host)
	found := map[string]*StaleContainer{}
	learn := func(id string, f *facts, own []netip.Prefix) {
		if found[id] == nil {
			found[id] = &StaleContainer{HandleID: id}
		}
		found[id].learn(f, own)
	}
	var unread []cnierr.Failure
	failures := e.searchStale(ctx, &r, func(batch *staleBatch) {
		for _, id := range batch.ids {
			learn(id, e.facts, batch.found[id])
		}
		// Only the notes lead to handles that no own block tells of.
		for ids := range slices.Chunk(batch.unlocated(), collectHandles) {
			located, err := a.locate(ctx, ids)
			for _, id := range ids {
				if err != nil {
					unread = append(unread, cnierr.Failure{Doing: "looking for the pods of the stale addresses of", Object: id, Err: err})
				}
				learn(id, located, nil)
			}
		}
	})
	var stale []StaleContainer
	for _, id := range slices.Sorted(maps.Keys(found)) {
		stale = append(stale, *found[id])
	}
	return stale, errors.Join(cnierr.Group(append(failures, unread...))...)
}

// unlocated are the handles of a batch that no block told of.
func (b *staleBatch) unlocated() []string {
	return slices.DeleteFunc(slices.Clone(b.ids), func(id string) bool { return len(b.found[id]) > 0 })
}

// locate reads handles, and the blocks that they name. What it learned before a
// failure is returned with it.
func (a *Allocator) locate(ctx context.Context, ids []string) (*facts, error) {
	e := a.engine("")
	d := &handleRelease{facts: e.facts, ids: ids}
	for needs := d.unread(); len(needs) > 0; needs = d.unread() {
		if err := e.readPassing(ctx, needs...); err != nil {
			return e.facts, err
		}
	}
	return e.facts, nil
}

// learn adds the owners that blocks tell of.
func (s *StaleContainer) learn(f *facts, own []netip.Prefix) {
	cidrs := own
	if handle := f.handles[s.HandleID].value; handle != nil {
		cidrs = slices.Concat(cidrs, sortedPrefixes(handle.Blocks))
	}
	for _, cidr := range cidrs {
		block := f.blocks[cidr].value
		if block == nil {
			continue
		}
		for _, ordinal := range block.Held(s.HandleID) {
			owner := block.HolderOf(ordinal).Owner
			if !slices.ContainsFunc(s.Owners, func(known map[string]string) bool { return maps.Equal(known, owner) }) {
				s.Owners = append(s.Owners, owner)
			}
		}
	}
}
