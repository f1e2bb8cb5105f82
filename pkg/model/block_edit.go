package model

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ReserveHandleID is the handle of the addresses that Windows keeps in every
// block; no handle object exists for it (datastore contract 4.4).
const ReserveHandleID = "windows-reserved-ipam-handle"

// Reservation keeps addresses at both ends of a new block from being handed
// out (IPAM contract 2.1). Existing blocks are never changed by it.
type Reservation struct {
	// Start and End count addresses at the front and at the back of a block.
	Start, End int
	HandleID   string
	Note       string
}

// Size is the number of addresses reserved per block; a nil r reserves none.
func (r *Reservation) Size() int {
	if r == nil {
		return 0
	}
	return r.Start + r.End
}

// BlockError is what stands in the way of an allocation. The texts are known
// to other tools (IPAM contract 7.4).
type BlockError string

// The reasons for which a block refuses an allocation.
const (
	ErrAddressTaken  BlockError = "Address already assigned in block"
	ErrOwnerMismatch BlockError = "Block host affinity does not match"
	ErrOwnerMissing  BlockError = "Attempt to assign from block"
	ErrOutsideBlock  BlockError = "address lies outside the block"
)

func (e BlockError) Error() string { return string(e) }

// NewBlock returns a block just claimed by owner, without allocations except
// for the reservation's, which may be nil (IPAM contract 2.1).
func NewBlock(cidr netip.Prefix, owner string, now time.Time, reserve *Reservation) *Block {
	b := &Block{
		CIDR: cidr.Masked(), Affinity: owner, ClaimTime: now.UTC().Truncate(time.Second),
		SequenceNumber: uint64(now.UnixNano()), SequenceForAllocation: map[int]uint64{},
	}
	size := b.Size()
	b.Allocations = make([]int, size)
	if reserve.Size() > 0 {
		b.Attributes = []Attribute{{HandleID: reserve.HandleID, Owner: map[string]string{"note": reserve.Note}}}
	}
	for ordinal := range size {
		if reserve.Size() > 0 && (ordinal < reserve.Start || ordinal >= size-reserve.End) {
			continue
		}
		b.Allocations[ordinal] = Free
		b.Unallocated = append(b.Unallocated, ordinal)
	}
	return b
}

// Addr returns the address of an ordinal, 0 <= ordinal < Size.
func (b *Block) Addr(ordinal int) netip.Addr {
	bytes := b.CIDR.Addr().As16()
	low := (int(bytes[14])<<8 | int(bytes[15])) + ordinal
	bytes[14], bytes[15] = byte(low>>8), byte(low)
	addr := netip.AddrFrom16(bytes)
	if b.CIDR.Addr().Is4() {
		return addr.Unmap()
	}
	return addr
}

// Ordinal returns the place of an address in the block.
func (b *Block) Ordinal(addr netip.Addr) (ordinal int, ok bool) {
	if !b.CIDR.Contains(addr) {
		return 0, false
	}
	bytes, base := addr.As16(), b.CIDR.Addr().As16()
	return (int(bytes[14])<<8 | int(bytes[15])) - (int(base[14])<<8 | int(base[15])), true
}

// HolderOf returns who holds an ordinal, nil if it is free. An attribute with
// ReleasedAt is a released address that cools down.
func (b *Block) HolderOf(ordinal int) *Attribute {
	if b.Allocations[ordinal] == Free {
		return nil
	}
	return &b.Attributes[b.Allocations[ordinal]]
}

// Held returns the ordinals that a handle holds, in ascending order. Of both
// ids only what precedes a carriage return counts (datastore contract 4.4).
func (b *Block) Held(handleID string) []int {
	var held []int
	for ordinal := range b.Allocations {
		holder := b.HolderOf(ordinal)
		if holder != nil && holder.ReleasedAt.IsZero() && holder.HandleID != "" &&
			HandleIDBefore(holder.HandleID) == HandleIDBefore(handleID) {
			held = append(held, ordinal)
		}
	}
	return held
}

// Empty reports whether nothing but the Windows reservation is allocated. An
// address that cools down is allocated (IPAM contract 1).
func (b *Block) Empty() bool {
	for _, index := range b.Allocations {
		if index != Free && !strings.EqualFold(b.Attributes[index].HandleID, ReserveHandleID) {
			return false
		}
	}
	return true
}

// Available counts the free addresses that reserved, which may be nil, does
// not cover.
func (b *Block) Available(reserved func(netip.Addr) bool) int {
	if reserved == nil {
		return len(b.Unallocated)
	}
	count := 0
	for _, ordinal := range b.Unallocated {
		if !reserved(b.Addr(ordinal)) {
			count++
		}
	}
	return count
}

// CheckOwner refuses a block that owner does not own; it is asked only under
// strict affinity (IPAM contract 2.3).
func (b *Block) CheckOwner(owner string) error {
	switch b.Affinity {
	case owner:
		return nil
	case "":
		return fmt.Errorf("%w %s with no affinity", ErrOwnerMissing, b.CIDR)
	}
	return fmt.Errorf("block %s: %w: it belongs to %s, not to %s", b.CIDR, ErrOwnerMismatch, b.Affinity, owner)
}

// Collect frees the released addresses that have cooled down and drops the
// attributes nobody refers to. It precedes every other use of a block that was
// read (IPAM contract 2.2). A negative cooldown has always elapsed.
func (b *Block) Collect(now time.Time, cooldown time.Duration) {
	for ordinal, index := range b.Allocations {
		if index == Free || b.Attributes[index].ReleasedAt.IsZero() {
			continue
		}
		if cooled(b.Attributes[index].ReleasedAt, now, cooldown) {
			b.Allocations[ordinal] = Free
			b.Unallocated = append(b.Unallocated, ordinal)
			delete(b.SequenceForAllocation, ordinal)
		}
	}
	b.dropUnreferenced()
}

// cooled treats "equal" as elapsed without a cooldown, lest a coarse clock
// keep an address until the next write.
func cooled(released, now time.Time, cooldown time.Duration) bool {
	if cooldown < 0 {
		return true
	}
	until := released.Add(cooldown)
	return until.Before(now) || cooldown == 0 && until.Equal(now)
}

func (b *Block) dropUnreferenced() {
	renumbered := make([]int, len(b.Attributes))
	for _, index := range b.Allocations {
		if index != Free {
			renumbered[index] = 1
		}
	}
	kept := make([]Attribute, 0, len(b.Attributes))
	for index, referenced := range renumbered {
		renumbered[index] = len(kept)
		if referenced == 1 {
			kept = append(kept, b.Attributes[index])
		}
	}
	for ordinal, index := range b.Allocations {
		if index != Free {
			b.Allocations[ordinal] = renumbered[index]
		}
	}
	b.Attributes = kept
}

// Allocate gives up to count addresses to a holder, from the front of the
// queue, passing over what reserved, which may be nil, covers (IPAM contract
// 2.3). Stamp the block before it is written.
func (b *Block) Allocate(count int, holder Attribute, reserved func(netip.Addr) bool) []netip.Addr {
	var taken []netip.Addr
	var left []int
	for i, ordinal := range b.Unallocated {
		if len(taken) == count {
			left = append(left, b.Unallocated[i:]...)
			break
		}
		addr := b.Addr(ordinal)
		if reserved != nil && reserved(addr) {
			left = append(left, ordinal)
			continue
		}
		taken = append(taken, addr)
		b.give(ordinal, holder)
	}
	b.Unallocated = left
	return taken
}

// AllocateAddress gives one certain address to a holder. Reservations of the
// cluster are not asked.
func (b *Block) AllocateAddress(addr netip.Addr, holder Attribute) error {
	ordinal, ok := b.Ordinal(addr)
	if !ok {
		return fmt.Errorf("block %s, address %s: %w", b.CIDR, addr, ErrOutsideBlock)
	}
	if b.Allocations[ordinal] != Free {
		return fmt.Errorf("block %s, address %s: %w", b.CIDR, addr, ErrAddressTaken)
	}
	if at := slices.Index(b.Unallocated, ordinal); at >= 0 {
		b.Unallocated = slices.Delete(b.Unallocated, at, at+1)
	}
	b.give(ordinal, holder)
	return nil
}

func (b *Block) give(ordinal int, holder Attribute) {
	index := slices.IndexFunc(b.Attributes, holder.same)
	if index < 0 {
		index = len(b.Attributes)
		b.Attributes = append(b.Attributes, Attribute{HandleID: holder.HandleID, Owner: maps.Clone(holder.Owner)})
	}
	b.Allocations[ordinal] = index
	if b.SequenceForAllocation == nil {
		b.SequenceForAllocation = map[int]uint64{}
	}
	b.SequenceForAllocation[ordinal] = b.SequenceNumber
}

// same reports whether two attributes name one holder and say nothing else.
func (a Attribute) same(other Attribute) bool {
	return a.HandleID == other.HandleID && maps.Equal(a.Owner, other.Owner) &&
		len(a.AlternateOwner)+len(other.AlternateOwner)+len(a.unknown)+len(other.unknown) == 0 &&
		a.ReleasedAt.IsZero() && other.ReleasedAt.IsZero()
}

// HeldBy reports whether an address is allocated to exactly this holder.
func (b *Block) HeldBy(addr netip.Addr, holder Attribute) bool {
	ordinal, ok := b.Ordinal(addr)
	if !ok {
		return false
	}
	current := b.HolderOf(ordinal)
	return current != nil && current.HandleID == holder.HandleID && current.ReleasedAt.IsZero() &&
		maps.Equal(current.Owner, holder.Owner)
}

// Release frees allocated ordinals, at once or after the cooldown (IPAM
// contract 2.4). Stamp the block before it is written.
func (b *Block) Release(ordinals []int, now time.Time, cooldown time.Duration) {
	if len(ordinals) == 0 {
		return
	}
	index := len(b.Attributes)
	b.Attributes = append(b.Attributes, Attribute{ReleasedAt: now.UTC().Truncate(time.Second)})
	for _, ordinal := range ordinals {
		b.Allocations[ordinal] = index
	}
	b.Collect(now, cooldown)
}

// SetOwner replaces the active or the alternate owner of allocated ordinals; a
// nil owner leaves the place empty. Stamp the block before it is written.
func (b *Block) SetOwner(ordinals []int, alternate bool, owner map[string]string) {
	changed := map[int]int{}
	for _, ordinal := range ordinals {
		before := b.Allocations[ordinal]
		after, done := changed[before]
		if !done {
			attribute := b.Attributes[before]
			if alternate {
				attribute.AlternateOwner = maps.Clone(owner)
			} else {
				attribute.Owner = maps.Clone(owner)
			}
			after = len(b.Attributes)
			b.Attributes = append(b.Attributes, attribute)
			changed[before] = after
		}
		b.Allocations[ordinal] = after
	}
	b.dropUnreferenced()
}

// StampReleased records the block's sequence number for ordinals that are
// about to be released by address; a release by handle does not (IPAM contract
// 2.4).
func (b *Block) StampReleased(ordinals []int) {
	if b.SequenceForAllocation == nil {
		b.SequenceForAllocation = map[int]uint64{}
	}
	for _, ordinal := range ordinals {
		b.SequenceForAllocation[ordinal] = b.SequenceNumber
	}
}

// Stamp counts an update; every write of an existing block is preceded by it.
func (b *Block) Stamp() { b.SequenceNumber++ }

// Disown takes the owner and the claim time away.
func (b *Block) Disown() { b.Affinity, b.ClaimTime = "", time.Time{} }
