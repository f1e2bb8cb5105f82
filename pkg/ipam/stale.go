package ipam

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// GCRequest says what is still in use on a host.
type GCRequest struct {
	Network string
	Host    string
	// ValidContainers are the ids of the containers that are attached.
	ValidContainers map[string]bool
	// Before is the start of the garbage collection: what was allocated later
	// stays.
	Before time.Time
	// NoteIDs are the handle ids of the host's attachment notes; they lead to
	// borrowed addresses and to handles without any.
	NoteIDs []string
	// Note makes a note of a handle that has none; nil: nothing does. It is
	// asked where a block is written before the handles of those that it held:
	// killed in between, nothing else leads to them any more.
	Note func(handleID string)
}

// stale reports whether a handle id is that of a container of the network that
// is not attached any more. What follows the network's name must hold no dot,
// else it may be a container of another network with a longer name.
func (r *GCRequest) stale(id string) bool {
	container, ok := strings.CutPrefix(model.HandleIDBefore(id), r.Network+".")
	return ok && container != "" && !strings.Contains(container, ".") && !r.ValidContainers[container]
}

// old reports whether an allocation was made on the host before the collection
// began. One that does not say so is not touched, nor is a tunnel's, nor a
// virtual machine's.
func (r *GCRequest) old(holder *model.Attribute) bool {
	made, err := parseTimestamp(holder.Owner["timestamp"])
	return err == nil && made.Before(r.Before) && holder.Owner["node"] == r.Host &&
		holder.Owner["type"] == "" && holder.Owner[AttributeInstance] == ""
}

// StaleQueries are the queries of the first read of StaleContainers
// and ReleaseStale. The node and the pools tell whether a block that becomes empty
// is to be given back.
func StaleQueries(host string) []datastore.Query {
	return []datastore.Query{
		datastore.Get{Key: model.IPAMConfigKey{}}, ownAffinities(host, model.IPv4), ownAffinities(host, model.IPv6),
		datastore.Get{Key: model.ResourceKey{Kind: model.KindNode, Name: host}}, datastore.ListResources{Kind: model.KindIPPool},
	}
}

// staleBatch are stale handles that are looked at together, in the order of
// the blocks that tell of them.
type staleBatch struct {
	ids []string
	// own are the host's blocks that were read for the batch.
	own []netip.Prefix
	// found are the host's own blocks that hold stale allocations of a handle.
	found map[string][]netip.Prefix
	// blind: nothing could be read, not even the configuration.
	blind bool
}

func (b *staleBatch) add(id string, cidrs ...netip.Prefix) {
	if _, known := b.found[id]; !known {
		b.ids = append(b.ids, id)
	}
	b.found[id] = append(b.found[id], cidrs...)
}

// staleNotes are the handles of the notes that are stale.
func (r *GCRequest) staleNotes() map[string]bool {
	noted := map[string]bool{}
	for _, id := range r.NoteIDs {
		if id = model.HandleIDBefore(id); r.stale(id) {
			noted[id] = true
		}
	}
	return noted
}

// searchStale reads the host's own blocks, some at a time, and hands the stale
// handles of each batch to visit while the blocks are known. The last batch
// holds the handles of the notes that no block told of. It goes on after a
// failure.
func (e *engine) searchStale(ctx context.Context, r *GCRequest, visit func(*staleBatch)) (failures []cnierr.Failure) {
	fail := func(where string, err error) {
		failures = append(failures, cnierr.Failure{Doing: "looking for stale addresses in", Object: where, Err: err})
	}
	noted := r.staleNotes()
	err := e.readOwn(ctx, r.Host)
	if err != nil {
		fail("the blocks of "+r.Host, err)
	}
	blind := err != nil
	unseen := slices.Concat(e.facts.own(model.IPv4), e.facts.own(model.IPv6))
	for first := true; first || len(unseen) > 0; first = false {
		batch := &staleBatch{found: map[string][]netip.Prefix{}, blind: blind}
		size := min(len(unseen), walkSize(e.store.Transactional()))
		batch.own, unseen = unseen[:size], unseen[size:]
		unread := e.readPassing(ctx, blockGets(batch.own)...)
		for _, cidr := range batch.own {
			switch {
			case unread != nil:
				fail(cidr.String(), unread)
			case e.facts.unreadable[cidr]:
				fail(cidr.String(), errors.New("the block cannot be read"))
			}
			for _, id := range r.staleIn(e.facts.blocks[cidr].value) {
				delete(noted, id)
				batch.add(id, cidr)
			}
		}
		if len(unseen) == 0 {
			for _, id := range slices.Sorted(maps.Keys(noted)) {
				batch.add(id)
			}
		}
		// A release must not take an unreadable block for a missing one.
		clear(e.facts.unreadable)
		visit(batch)
		clear(e.facts.blocks)
		clear(e.facts.handles)
	}
	return failures
}

// readOwn reads what StaleQueries ask. Blocks are looked for even if the node
// or a pool cannot be read.
func (e *engine) readOwn(ctx context.Context, host string) error {
	queries := StaleQueries(host)
	err := e.read(ctx, queries...)
	if err != nil && ctx.Err() == nil && e.read(ctx, queries[:3]...) == nil {
		return nil
	}
	return err
}

// staleIn returns the ids that hold stale allocations in a block.
func (r *GCRequest) staleIn(block *model.Block) []string {
	var ids []string
	if block == nil {
		return nil
	}
	seen := map[string]bool{}
	for ordinal := range block.Allocations {
		holder := block.HolderOf(ordinal)
		if holder == nil || !r.stale(holder.HandleID) || !r.old(holder) {
			continue
		}
		if id := model.HandleIDBefore(holder.HandleID); !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}
