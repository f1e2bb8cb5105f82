package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

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

// ReleaseStale releases the addresses and handles of containers that are not
// attached any more: those in the host's own blocks, and those that the notes
// lead to. It goes on after a failure, returns all failures, and the ids that
// are done.
func (a *Allocator) ReleaseStale(ctx context.Context, r GCRequest) (done []string, err error) {
	found, err := a.findStale(ctx, &r)
	var failures []error
	if err != nil {
		failures = append(failures, err)
	}
	for _, id := range sortedKeys(found) {
		if err := a.releaseStaleHandle(ctx, &r, id, found[id]); err != nil {
			failures = append(failures, fmt.Errorf("releasing the stale handle %s: %w", id, err))
			continue
		}
		done = append(done, id)
	}
	return done, errors.Join(failures...)
}

// StaleHandles returns the ids whose addresses ReleaseStale would release, in
// order, and releases nothing.
func (a *Allocator) StaleHandles(ctx context.Context, r GCRequest) ([]string, error) {
	found, err := a.findStale(ctx, &r)
	return sortedKeys(found), err
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// findStale returns the stale handle ids, with the host's own blocks that hold
// allocations of theirs. What it found before a failure is returned with it.
func (a *Allocator) findStale(ctx context.Context, r *GCRequest) (map[string][]netip.Prefix, error) {
	found := map[string][]netip.Prefix{}
	for _, id := range r.NoteIDs {
		if id = model.HandleIDBefore(id); r.stale(id) {
			found[id] = nil
		}
	}
	if err := a.searchOwnBlocks(ctx, r, found); err != nil {
		return found, fmt.Errorf("looking for stale addresses in the blocks of %s: %w", r.Host, err)
	}
	return found, nil
}

// searchOwnBlocks reads the host's own blocks, some at a time. Those that make
// no sense are reported, and keep nothing in the others.
func (a *Allocator) searchOwnBlocks(ctx context.Context, r *GCRequest, found map[string][]netip.Prefix) error {
	e := a.engine(r.Host)
	err := e.read(ctx, datastore.Get{Key: model.IPAMConfigKey{}}, ownAffinities(r.Host, model.IPv4), ownAffinities(r.Host, model.IPv6))
	if err != nil {
		return err
	}
	size := ownBatchNonTransactional
	if a.store.Transactional() {
		size = ownBatch
	}
	own := append(e.facts.own(model.IPv4), e.facts.own(model.IPv6)...)
	var failures []error
	for batch := range slices.Chunk(own, size) {
		if err := e.readPassing(ctx, blockGets(batch)...); err != nil {
			return errors.Join(append(failures, err)...)
		}
		for _, cidr := range batch {
			if e.facts.unreadable[cidr] {
				failures = append(failures, fmt.Errorf("block %s cannot be read", cidr))
			}
			for _, id := range r.staleIn(e.facts.blocks[cidr].value) {
				found[id] = append(found[id], cidr)
			}
		}
	}
	return errors.Join(failures...)
}

// staleIn returns the ids that hold stale allocations in a block.
func (r *GCRequest) staleIn(block *model.Block) []string {
	var ids []string
	if block == nil {
		return nil
	}
	for ordinal := range block.Allocations {
		holder := block.HolderOf(ordinal)
		if holder == nil || !r.stale(holder.HandleID) || !r.old(holder) {
			continue
		}
		if id := model.HandleIDBefore(holder.HandleID); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (a *Allocator) releaseStaleHandle(ctx context.Context, r *GCRequest, id string, found []netip.Prefix) error {
	e := a.engine("")
	if err := e.read(ctx, ReleaseQueries(id)...); err != nil {
		return err
	}
	d := &handleRelease{
		facts: e.facts, ids: []string{id}, touched: map[netip.Prefix]bool{},
		found: map[string][]netip.Prefix{id: found}, stale: r.old,
	}
	if err := e.run(ctx, d.decide); err != nil {
		return err
	}
	e.returnUnselected(ctx, sortedPrefixes(d.touched))
	return nil
}
