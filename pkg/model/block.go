package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Free marks an ordinal of a block that no attribute holds.
const Free = -1

// Block is a contiguous range of addresses that one host hands out
// (datastore contract 4.2). Ordinal i is the i-th address of CIDR.
type Block struct {
	CIDR netip.Prefix
	// Affinity is the owner, "host:<node>" or "virtual:<name>"; empty: none.
	Affinity string
	// ClaimTime is when the owner claimed the block, whole seconds; zero:
	// not recorded, which counts as infinitely long ago.
	ClaimTime time.Time
	// Allocations holds, per ordinal, an index into Attributes, or Free.
	Allocations []int
	// Unallocated is a queue of free ordinals: taken from the front, returned
	// at the back.
	Unallocated []int
	Attributes  []Attribute
	// SequenceNumber is the creation time in ns since the epoch, plus one per
	// update.
	SequenceNumber uint64
	// SequenceForAllocation is, per allocated ordinal, SequenceNumber before
	// the write that allocated it. Entries of free ordinals mean nothing.
	SequenceForAllocation map[int]uint64
	// Deleted is the two-step deletion's flag.
	Deleted bool

	unknown Unknown
}

// Attribute says who holds an allocation.
type Attribute struct {
	// HandleID is empty for entries that old writers left without one.
	HandleID string
	// Owner is the active owner; AlternateOwner is a migration target.
	Owner          map[string]string
	AlternateOwner map[string]string
	// ReleasedAt is set while a released address cools down.
	ReleasedAt time.Time

	unknown Unknown
}

type attributeDocument struct {
	HandleID       *string           `json:"handle_id,omitempty"`
	Secondary      map[string]string `json:"secondary,omitempty"`
	AlternateOwner map[string]string `json:"alternateOwnerAttrs,omitempty"`
	ReleasedAt     *time.Time        `json:"releasedAt,omitempty"`
}

// MarshalJSON writes the attribute's wire form.
func (a Attribute) MarshalJSON() ([]byte, error) {
	doc := attributeDocument{Secondary: a.Owner, AlternateOwner: a.AlternateOwner}
	if a.HandleID != "" {
		doc.HandleID = &a.HandleID
	}
	doc.ReleasedAt = timeOrNil(a.ReleasedAt)
	return encodeKeeping(doc, a.unknown)
}

// UnmarshalJSON reads the attribute's wire form.
func (a *Attribute) UnmarshalJSON(data []byte) error {
	var doc attributeDocument
	unknown, err := decodeKeeping(data, &doc)
	if err != nil {
		return err
	}
	*a = Attribute{Owner: doc.Secondary, AlternateOwner: doc.AlternateOwner, unknown: unknown}
	if doc.HandleID != nil {
		a.HandleID = *doc.HandleID
	}
	if doc.ReleasedAt != nil {
		a.ReleasedAt = *doc.ReleasedAt
	}
	return nil
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	// RFC 3339 has years of four digits; UTC may lie beyond them.
	if utc := t.UTC(); utc.Year() >= 0 && utc.Year() <= 9999 {
		t = utc
	}
	t = t.Truncate(time.Second)
	return &t
}

// Clone returns a copy that shares nothing changeable with b.
func (b *Block) Clone() *Block {
	out := *b
	out.Allocations = slices.Clone(b.Allocations)
	out.Unallocated = slices.Clone(b.Unallocated)
	out.Attributes = make([]Attribute, len(b.Attributes))
	for i, attribute := range b.Attributes {
		attribute.Owner = maps.Clone(attribute.Owner)
		attribute.AlternateOwner = maps.Clone(attribute.AlternateOwner)
		out.Attributes[i] = attribute
	}
	out.SequenceForAllocation = maps.Clone(b.SequenceForAllocation)
	return &out
}

// Size is the number of addresses in the block.
func (b *Block) Size() int { return 1 << (b.CIDR.Addr().BitLen() - b.CIDR.Bits()) }

// blockDocument is the wire form in etcd and in the embedded file.
type blockDocument struct {
	CIDR           string            `json:"cidr"`
	Affinity       *string           `json:"affinity"`
	ClaimTime      *time.Time        `json:"affinity_claim_time,omitempty"`
	Allocations    []*int            `json:"allocations"`
	Unallocated    []int             `json:"unallocated"`
	Attributes     []Attribute       `json:"attributes"`
	SequenceNumber uint64            `json:"sequenceNumber"`
	Sequences      map[string]uint64 `json:"sequenceNumberForAllocation"`
	Deleted        bool              `json:"deleted"`
}

// MarshalJSON writes the wire form used in etcd and in the embedded file.
func (b *Block) MarshalJSON() ([]byte, error) {
	doc := blockDocument{
		CIDR:           b.CIDR.String(),
		ClaimTime:      timeOrNil(b.ClaimTime),
		Allocations:    make([]*int, len(b.Allocations)),
		Unallocated:    append([]int{}, b.Unallocated...),
		Attributes:     append([]Attribute{}, b.Attributes...),
		SequenceNumber: b.SequenceNumber,
		Sequences:      make(map[string]uint64, len(b.SequenceForAllocation)),
		Deleted:        b.Deleted,
	}
	if b.Affinity != "" {
		doc.Affinity = &b.Affinity
	}
	for i := range b.Allocations {
		if b.Allocations[i] != Free {
			doc.Allocations[i] = &b.Allocations[i]
		}
	}
	for ordinal, sequence := range b.SequenceForAllocation {
		doc.Sequences[strconv.Itoa(ordinal)] = sequence
	}
	return encodeKeeping(doc, b.unknown)
}

// maxBlockBits bounds the block sizes that are read: 2^16 addresses. Pools may
// have at most 2^12 (datastore contract 4.1).
const maxBlockBits = 16

// UnmarshalJSON reads the wire form and refuses documents whose parts
// contradict each other, since every use of such a block would be a guess.
func (b *Block) UnmarshalJSON(data []byte) error {
	var doc blockDocument
	unknown, err := decodeKeeping(data, &doc)
	if err != nil {
		return err
	}
	cidr, err := netip.ParsePrefix(doc.CIDR)
	if err != nil {
		return fmt.Errorf("cidr %q: %w", doc.CIDR, err)
	}
	if cidr.Addr().BitLen()-cidr.Bits() > maxBlockBits {
		return fmt.Errorf("cidr %s is larger than any block", cidr)
	}
	*b = Block{
		CIDR: cidr.Masked(), Unallocated: doc.Unallocated, Attributes: doc.Attributes,
		SequenceNumber: doc.SequenceNumber, Deleted: doc.Deleted, unknown: unknown,
		Allocations:           make([]int, len(doc.Allocations)),
		SequenceForAllocation: make(map[int]uint64, len(doc.Sequences)),
	}
	if doc.Affinity != nil {
		b.Affinity = *doc.Affinity
	}
	if doc.ClaimTime != nil {
		b.ClaimTime = *doc.ClaimTime
	}
	for i, index := range doc.Allocations {
		b.Allocations[i] = Free
		if index != nil {
			b.Allocations[i] = *index
		}
	}
	for text, sequence := range doc.Sequences {
		if ordinal, err := strconv.Atoi(text); err == nil {
			b.SequenceForAllocation[ordinal] = sequence
		}
	}
	return b.valid()
}

func (b *Block) valid() error {
	if len(b.Allocations) != b.Size() {
		return fmt.Errorf("block %s has %d allocations, want %d", b.CIDR, len(b.Allocations), b.Size())
	}
	for ordinal, index := range b.Allocations {
		if index != Free && (index < 0 || index >= len(b.Attributes)) {
			return fmt.Errorf("block %s: ordinal %d refers to attribute %d of %d", b.CIDR, ordinal, index, len(b.Attributes))
		}
	}
	seen := make(map[int]bool, len(b.Unallocated))
	for _, ordinal := range b.Unallocated {
		if ordinal < 0 || ordinal >= b.Size() || seen[ordinal] || b.Allocations[ordinal] != Free {
			return fmt.Errorf("block %s: the queue of free ordinals holds %d, which is out of range, twice there, or allocated", b.CIDR, ordinal)
		}
		seen[ordinal] = true
	}
	return nil
}

var _ json.Marshaler = (*Block)(nil)
