package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Allocation is one address that a handle holds.
type Allocation struct {
	Addr  netip.Addr
	Block netip.Prefix
	// Attributes are the active owner's; Alternate those of a migration target.
	Attributes, Alternate map[string]string
	HandleID              string
	// Sequence guards a release (Release.Sequence).
	Sequence uint64
}

// AddressesByHandle returns the addresses that a handle holds, by block;
// blocks that cannot be read are passed over (IPAM contract 6). A handle that
// does not exist is datastore.ErrNotFound.
func (a *Allocator) AddressesByHandle(ctx context.Context, id string) ([]netip.Addr, error) {
	allocations, err := a.AllocationsByHandle(ctx, id)
	var addresses []netip.Addr
	for _, allocation := range allocations {
		addresses = append(addresses, allocation.Addr)
	}
	return addresses, err
}

// Holding is what a handle holds.
type Holding struct {
	Allocations []Allocation
	// Dangling are blocks in which the handle counts addresses but holds none:
	// somebody is between the two writes of an allocation, or was killed there
	// (IPAM contract 3.4).
	Dangling []netip.Prefix
	// Unreadable are blocks of the handle of which nothing is known.
	Unreadable []netip.Prefix
}

// AllocationsByHandle is AddressesByHandle with the owners.
func (a *Allocator) AllocationsByHandle(ctx context.Context, id string) ([]Allocation, error) {
	e := a.engine("")
	ids := handleIDs([]string{id})
	if len(ids) == 0 {
		return nil, errors.New("looking up the addresses of a handle: it has no id")
	}
	if err := e.read(ctx, ReleaseQueries(ids...)...); err != nil {
		return nil, err
	}
	handle := e.facts.handles[ids[0]].value
	if handle == nil {
		return nil, fmt.Errorf("%s: %w", model.HandleKey{ID: ids[0]}, datastore.ErrNotFound)
	}
	if len(handle.Blocks) == 0 {
		return nil, nil
	}
	if err := e.readPassing(ctx, blockGets(sortedPrefixes(handle.Blocks))...); err != nil {
		return nil, err
	}
	return e.facts.holding(ids[0]).Allocations, nil
}

// holding is what a handle holds whose blocks have been read.
func (f *facts) holding(id string) Holding {
	var holding Holding
	handle := f.handles[id].value
	if handle == nil {
		return holding
	}
	for _, cidr := range sortedPrefixes(handle.Blocks) {
		block := f.blocks[cidr].value
		switch {
		case f.unreadable[cidr]:
			holding.Unreadable = append(holding.Unreadable, cidr)
		case block == nil || len(block.Held(id)) == 0:
			holding.Dangling = append(holding.Dangling, cidr)
		default:
			holding.Allocations = append(holding.Allocations, allocations(block, block.Held(id))...)
		}
	}
	return holding
}

func blockGets(cidrs []netip.Prefix) []datastore.Query {
	queries := make([]datastore.Query, len(cidrs))
	for i, cidr := range cidrs {
		queries[i] = datastore.Get{Key: model.BlockKey{CIDR: cidr}}
	}
	return queries
}

// allocations describes ordinals of a block that are allocated.
func allocations(block *model.Block, ordinals []int) []Allocation {
	var out []Allocation
	for _, ordinal := range ordinals {
		holder := block.HolderOf(ordinal)
		out = append(out, Allocation{
			Addr: block.Addr(ordinal), Block: block.CIDR, HandleID: holder.HandleID,
			Attributes: holder.Owner, Alternate: holder.AlternateOwner, Sequence: block.SequenceForAllocation[ordinal],
		})
	}
	return out
}
