package ipam

import (
	"context"
	"fmt"
	"maps"
	"net/netip"

	"calico-cni/pkg/model"
)

// settle records which addresses of a plan its holder has, and what the handle
// counts beyond them, from objects that have just been read.
func (f *facts) settle(p *plan) {
	counted := f.counted(p)
	if counted {
		f.surplus = map[netip.Prefix]int{}
	}
	for cidr, addresses := range p.taken {
		switch {
		case f.holds(cidr, addresses, p.holder):
			f.obtained[cidr] = append(f.obtained[cidr], addresses...)
			if len(p.handles) == 0 {
				delete(f.surplus, cidr) // the handle counted them already
			}
		case counted:
			f.surplus[cidr] += len(addresses)
		}
	}
}

// counted reports whether the handle counts what the plan added. All of a
// transaction is told by its blocks.
func (f *facts) counted(p *plan) bool {
	for _, e := range p.handles {
		if !f.applied(p, e.key.(model.HandleKey).ID) {
			return false
		}
	}
	return len(p.handles) > 0
}

// holds reports whether a block holds the addresses for exactly this holder,
// timestamp included (IPAM contract 5.2).
func (f *facts) holds(cidr netip.Prefix, addresses []netip.Addr, holder model.Attribute) bool {
	block := f.blocks[cidr].value
	for _, addr := range addresses {
		if block == nil || !block.HeldBy(addr, holder) {
			return false
		}
	}
	return true
}

// undo gives back what a failed request has written, within a deadline of its
// own. What cannot be given back is found by the release of the handle.
func (e *engine) undo(ctx context.Context, handleID string, holder map[string]string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if e.unsettled != nil {
		if err := e.settle(ctx, e.unsettled); err != nil {
			return fmt.Errorf("looking up what was assigned before the failure: %w", err)
		}
	}
	d := &undoing{facts: e.facts, handleID: handleID, holder: model.Attribute{HandleID: handleID, Owner: holder}}
	if err := e.run(ctx, d.decide); err != nil {
		return fmt.Errorf("giving back what was assigned before the failure: %w", err)
	}
	return nil
}

// undoing is the decision what to write to undo a request.
type undoing struct {
	facts    *facts
	handleID string
	holder   model.Attribute
	last     *plan
}

func (d *undoing) decide() (decision, error) {
	p := &plan{takesBack: true}
	excess := maps.Clone(d.facts.surplus)
	for _, cidr := range sortedPrefixes(d.facts.obtained) {
		addresses := d.facts.obtained[cidr]
		excess[cidr] += len(addresses)
		known := d.facts.blocks[cidr]
		if !d.facts.holds(cidr, addresses, d.holder) {
			continue // given back in an earlier round
		}
		block := known.value.Clone()
		block.Release(ordinalsOf(block, addresses), d.facts.now, d.facts.cooldown())
		p.blocks = append(p.blocks, releasedBlock(block, known.revision))
	}
	handle := d.facts.handles[d.handleID]
	counted := d.last != nil && d.facts.applied(d.last, d.handleID)
	if len(excess) > 0 && handle.value != nil && !counted {
		p.handles = []edit{handleEdit(d.handleID, lessened(handle.value, excess), handle.revision)}
	}
	d.last = p
	return decision{final: p}, nil
}

// applied reports whether an earlier plan, not known to be complete, has
// written a handle. If the answer to just that write was lost, this is a guess
// that rather lets the handle count too much: what took away counts as done if
// the handle has changed at all, what added only if it is as planned.
func (f *facts) applied(p *plan, id string) bool {
	for _, e := range p.handles {
		if e.key != (model.HandleKey{ID: id}) {
			continue
		}
		known := f.handles[id]
		_, written := p.outcome.written[e.key]
		switch {
		case written:
			return known.value != nil
		case !p.outcome.inSequence:
			return false
		case e.value == nil && known.value == nil:
			return true
		case !p.outcome.uncertain || known.value == nil || known.revision == e.revision:
			return false
		}
		planned, ok := e.value.(*model.Handle)
		return p.takesBack || ok && maps.Equal(known.value.Blocks, planned.Blocks)
	}
	return false
}

func ordinalsOf(block *model.Block, addresses []netip.Addr) []int {
	var out []int
	for _, addr := range addresses {
		if ordinal, ok := block.Ordinal(addr); ok {
			out = append(out, ordinal)
		}
	}
	return out
}

// lessened returns a handle that counts less, by block.
func lessened(handle *model.Handle, by map[netip.Prefix]int) *model.Handle {
	out := handle.Clone()
	for cidr, count := range by {
		if out.Blocks[cidr] -= count; out.Blocks[cidr] <= 0 {
			delete(out.Blocks, cidr)
		}
	}
	return out
}
