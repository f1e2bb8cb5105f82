package ipam

import (
	"context"
	"fmt"
	"math/big"
	"net/netip"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// BlockUsage counts the addresses of one block (IPAM contract 12).
type BlockUsage struct {
	CIDR  netip.Prefix
	Owner string
	Total int
	// InUse is whatever is not free for allocation: Windows' reserve and
	// addresses that cool down too.
	InUse int
	// Reserved are covered by an IPReservation; some may be in use.
	Reserved int
	// Free are neither.
	Free int
}

// PoolUsage counts the addresses of one pool; totals cover the whole CIDR.
type PoolUsage struct {
	Name                         string
	CIDR                         netip.Prefix
	Total, InUse, Reserved, Free *big.Int
	Blocks                       []BlockUsage
}

// Borrowed is an address in use on another node than its block's owner.
type Borrowed struct {
	Addr  netip.Addr
	Node  string
	Block netip.Prefix
	// Owner is the block's owner string; empty: none.
	Owner       string
	Type        string
	AllocatedTo string
}

// Usage is how the cluster's addresses are used.
type Usage struct {
	Config *model.IPAMConfig
	Pools  []PoolUsage
	// Orphans are blocks outside every pool.
	Orphans  []BlockUsage
	Borrowed []Borrowed
	// WithoutNode counts allocations that do not tell their node.
	WithoutNode int
	// Warnings name what could not be read: bad pools, malformed reservations.
	Warnings []string
}

// Usage reads all pools and blocks and counts. It writes nothing.
func (a *Allocator) Usage(ctx context.Context) (*Usage, error) {
	e := a.engine("")
	err := e.read(ctx,
		datastore.Get{Key: model.IPAMConfigKey{}},
		datastore.ListResources{Kind: model.KindIPPool},
		datastore.ListResources{Kind: model.KindIPReservation},
		datastore.ListBlocks{Family: model.IPv4},
		datastore.ListBlocks{Family: model.IPv6})
	if err != nil {
		return nil, err
	}
	return e.facts.usage(), nil
}

func (f *facts) usage() *Usage {
	u := &Usage{Config: f.config, Warnings: f.warnings}
	for _, p := range f.pools {
		u.Pools = append(u.Pools, f.emptyPool(p))
	}
	for _, cidr := range sortedPrefixes(f.blocks) {
		block := f.blocks[cidr].value
		if block == nil {
			continue
		}
		counted := f.blockUsage(block)
		u.addBlock(f.pools, counted)
		u.addBorrowed(block)
	}
	return u
}

func (f *facts) blockUsage(block *model.Block) BlockUsage {
	u := BlockUsage{CIDR: block.CIDR, Owner: block.Affinity, Total: block.Size(), InUse: block.Size() - len(block.Unallocated)}
	for ordinal := range block.Size() {
		if f.reserved.contains(block.Addr(ordinal)) {
			u.Reserved++
		}
	}
	u.Free = block.Available(f.reserved.contains)
	return u
}

// emptyPool counts a pool as if it had no blocks.
func (f *facts) emptyPool(p pool) PoolUsage {
	total := new(big.Int).Lsh(big.NewInt(1), uint(p.cidr.Addr().BitLen()-p.cidr.Bits()))
	reserved := f.reserved.count(p.cidr)
	return PoolUsage{
		Name: p.Metadata.Name, CIDR: p.cidr, Total: total, InUse: new(big.Int),
		Reserved: reserved, Free: new(big.Int).Sub(total, reserved),
	}
}

// count is the number of addresses of a prefix in the set.
func (s spans) count(cidr netip.Prefix) *big.Int {
	total := new(big.Int)
	for _, held := range s {
		first, last := held.first, held.last
		if first.BitLen() != cidr.Addr().BitLen() || last.Less(cidr.Addr()) || lastAddress(cidr).Less(first) {
			continue
		}
		if first.Less(cidr.Addr()) {
			first = cidr.Addr()
		}
		if lastAddress(cidr).Less(last) {
			last = lastAddress(cidr)
		}
		total.Add(total, addressNumber(last).sub(addressNumber(first)).big())
		total.Add(total, big.NewInt(1))
	}
	return total
}

// addBlock adds a block to its pool: the first that it begins in.
func (u *Usage) addBlock(pools []pool, block BlockUsage) {
	for i, p := range pools {
		if !p.cidr.Contains(block.CIDR.Addr()) {
			continue
		}
		pool := &u.Pools[i]
		pool.Blocks = append(pool.Blocks, block)
		pool.InUse.Add(pool.InUse, big.NewInt(int64(block.InUse)))
		// What the block has free was counted as free already; what is
		// reserved was not.
		taken := block.Total - block.Reserved - block.Free
		pool.Free.Sub(pool.Free, big.NewInt(int64(taken)))
		return
	}
	u.Orphans = append(u.Orphans, block)
}

func (u *Usage) addBorrowed(block *model.Block) {
	for ordinal := range block.Allocations {
		holder := block.HolderOf(ordinal)
		if holder == nil || !holder.ReleasedAt.IsZero() || strings.EqualFold(holder.HandleID, model.ReserveHandleID) {
			continue
		}
		node := holder.Owner["node"]
		if node == "" {
			u.WithoutNode++
			continue
		}
		if block.Affinity == model.AffinityHost+":"+node {
			continue
		}
		u.Borrowed = append(u.Borrowed, Borrowed{
			Addr: block.Addr(ordinal), Node: node, Block: block.CIDR, Owner: block.Affinity,
			Type: allocationType(holder), AllocatedTo: allocatedTo(holder),
		})
	}
}

func allocationType(holder *model.Attribute) string {
	switch {
	case holder.Owner["type"] != "":
		return holder.Owner["type"]
	case holder.Owner["pod"] != "":
		return "pod"
	}
	return ""
}

func allocatedTo(holder *model.Attribute) string {
	if pod := holder.Owner["pod"]; pod != "" {
		return holder.Owner["namespace"] + "/" + pod
	}
	return holder.HandleID
}

// Lookup returns who holds an address; nil: nobody. Blocks are listed only for
// an address outside all pools.
func (a *Allocator) Lookup(ctx context.Context, addr netip.Addr) (*Allocation, error) {
	e := a.engine("")
	err := e.read(ctx, datastore.Get{Key: model.IPAMConfigKey{}}, datastore.ListResources{Kind: model.KindIPPool})
	if err != nil {
		return nil, err
	}
	byBlock, _, err := e.groupByBlock(ctx, []Release{{Addr: addr}})
	if err != nil {
		return nil, err
	}
	for cidr := range byBlock {
		if err := e.read(ctx, blockGets([]netip.Prefix{cidr})...); err != nil {
			return nil, fmt.Errorf("looking up %s: %w", addr, err)
		}
		block := e.facts.blocks[cidr].value
		if block == nil {
			continue
		}
		ordinal, _ := block.Ordinal(addr)
		if holder := block.HolderOf(ordinal); holder != nil && holder.ReleasedAt.IsZero() {
			return &allocations(block, []int{ordinal})[0], nil
		}
	}
	return nil, nil
}
