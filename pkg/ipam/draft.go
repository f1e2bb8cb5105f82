package ipam

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// maxMutations keeps a transaction well below the 128 operations, and maxBytes
// below the 1.5 MiB, that an etcd server accepts. One block can be as large as
// maxBytes.
const (
	maxMutations = 96
	maxBytes     = 1400 << 10
)

// largeDraft is how much a draft holds before it must not grow: whatever block
// comes next must fit.
const largeDraft = 96 << 10

// weight estimates how many bytes a block takes when it is written.
func weight(b *model.Block) int {
	if b == nil {
		return 0
	}
	const perAddress, perAttribute, perMember = 12, 40, 8
	bytes := perAddress*b.Size() + 30*len(b.SequenceForAllocation)
	for _, attribute := range b.Attributes {
		bytes += perAttribute + len(attribute.HandleID)
		for _, owner := range []map[string]string{attribute.Owner, attribute.AlternateOwner} {
			for name, value := range owner {
				bytes += perMember + len(name) + len(value)
			}
		}
	}
	return bytes
}

// draft is a plan in the making: copies of the blocks and the handle with the
// edits made so far.
type draft struct {
	facts    *facts
	handleID string
	holder   model.Attribute
	blocks   map[netip.Prefix]*blockDraft
	order    []netip.Prefix
	guards   map[model.Key]datastore.Revision
	// size counts mutations and guards, bytes what they weigh.
	size, bytes int
}

type blockDraft struct {
	value    *model.Block
	revision datastore.Revision
	claim    *claim
	taken    []netip.Addr
}

func newDraft(f *facts, handleID string, holder map[string]string) *draft {
	return &draft{
		facts: f, handleID: handleID, holder: model.Attribute{HandleID: handleID, Owner: holder},
		blocks: map[netip.Prefix]*blockDraft{}, guards: map[model.Key]datastore.Revision{},
	}
}

// own takes a block of this host into the draft; an affinity that is not
// confirmed, or missing, becomes so, and the block is rewritten with it
// (IPAM contract 3.2 row 4).
func (d *draft) own(cidr netip.Prefix) *blockDraft {
	b := d.existing(cidr)
	if b.claim == nil {
		affinity := d.facts.affinities[d.facts.affinityKey(cidr)]
		b.claim = &claim{
			key: d.facts.affinityKey(cidr), revision: affinity.revision,
			write: affinity.value == nil || !affinity.value.State.Confirmed(),
		}
		d.size++
	}
	return b
}

// existing takes a block into the draft without regard to its owner.
func (d *draft) existing(cidr netip.Prefix) *blockDraft {
	if b, ok := d.blocks[cidr]; ok {
		return b
	}
	known := d.facts.blocks[cidr]
	return d.add(cidr, &blockDraft{value: known.value.Clone(), revision: known.revision})
}

// claimed takes a block into the draft that does not exist yet. The pool must
// still be as read, and no larger block may appear round it (IPAM contract
// 5.2).
func (d *draft) claimed(cidr netip.Prefix, from pool, reserve *model.Reservation) *blockDraft {
	key := d.facts.affinityKey(cidr)
	d.guards[from.key()] = from.revision
	for _, covering := range coveringBlocks(cidr) {
		d.guards[covering] = datastore.Absent
	}
	d.size += coveringHostBits
	return d.add(cidr, &blockDraft{
		value: model.NewBlock(cidr, d.facts.owner(), d.facts.now, reserve),
		claim: &claim{key: key, revision: d.facts.affinities[key].revision, write: true},
	})
}

func (d *draft) add(cidr netip.Prefix, b *blockDraft) *blockDraft {
	d.blocks[cidr] = b
	d.order = append(d.order, cidr)
	d.size += 2
	d.bytes += weight(b.value)
	return b
}

// allocate takes up to count addresses from a block of the draft.
func (d *draft) allocate(b *blockDraft, count int) []netip.Addr {
	taken := b.value.Allocate(count, d.holder, d.facts.reserved.contains)
	b.taken = append(b.taken, taken...)
	return taken
}

// full reports whether one transaction should hold no more.
func (d *draft) full() bool {
	return d.size+2*coveringHostBits > maxMutations || d.bytes > largeDraft
}

// holds reports whether the draft has edited or claimed a block.
func (d *draft) holds(cidr netip.Prefix) bool { return d.blocks[cidr] != nil }

// plan returns what to write. Every block that holds a new address is counted
// in the handle, by as many as were taken.
func (d *draft) plan() *plan {
	p := &plan{taken: map[netip.Prefix][]netip.Addr{}, holder: d.holder}
	for _, cidr := range d.order {
		b := d.blocks[cidr]
		if b.claim != nil {
			p.claims = append(p.claims, *b.claim)
		}
		if b.revision != datastore.Absent || len(b.taken) > 0 {
			b.value.Stamp()
		}
		p.blocks = append(p.blocks, edit{model.BlockKey{CIDR: cidr}, b.value, b.revision})
		if len(b.taken) > 0 {
			p.taken[cidr] = b.taken
		}
	}
	d.countInHandle(p)
	for key, revision := range d.guards {
		p.guards = append(p.guards, edit{key: key, revision: revision})
	}
	slices.SortFunc(p.guards, func(a, b edit) int { return strings.Compare(a.key.Path(), b.key.Path()) })
	return p
}

// countInHandle writes the handle only if it does not count right already.
func (d *draft) countInHandle(p *plan) {
	if d.handleID == "" || len(p.taken)+len(d.facts.surplus) == 0 {
		return
	}
	known := d.facts.handles[d.handleID]
	handle := &model.Handle{}
	if known.value != nil {
		handle = lessened(known.value, d.facts.surplus)
	}
	if handle.Blocks == nil {
		handle.Blocks = map[netip.Prefix]int{}
	}
	for cidr, taken := range p.taken {
		// At least what the block holds: an earlier count may have been lost.
		handle.Blocks[cidr] = max(handle.Blocks[cidr]+len(taken), len(d.blocks[cidr].value.Held(d.handleID)))
	}
	if known.value == nil && len(handle.Blocks) == 0 || known.value != nil && maps.Equal(handle.Blocks, known.value.Blocks) {
		return
	}
	p.handles = []edit{handleEdit(d.handleID, handle, known.revision)}
}
