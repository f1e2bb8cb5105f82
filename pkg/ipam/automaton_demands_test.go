package ipam

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// demand is a property of every state, or of every step.
type demand string

// What must hold always.
const (
	// keptAddresses: who was given an address has it, and nobody else.
	keptAddresses demand = "an address belongs to one container"
	// oneOwner: a block has one owner, who has a claim on it.
	oneOwner demand = "a block has one owner"
	// exactCounts: a handle counts what the blocks hold, exactly with
	// transactions, at least without.
	exactCounts demand = "handles count right"
	// noOverlap: no address lies in two blocks.
	noOverlap demand = "blocks do not overlap"
	// poolsOnly: a new block lies in a pool.
	poolsOnly demand = "a block is claimed from a pool that exists"
	// claimedUse: a host takes addresses from its blocks under a confirmed
	// claim, with transactions.
	claimedUse demand = "a block is used under a confirmed claim"
	// noneLeft: who ends a host's claim leaves the host no block there.
	noneLeft demand = "a claim ends with the ownership"
	// noLostUpdate: nobody overwrites or deletes what it has not seen.
	noLostUpdate demand = "nothing unseen is overwritten"
	// recovery: whatever the dead have left, it can be put right.
	recovery demand = "every state is recoverable"
)

func (m *automaton) checks(d demand) bool { return m.demands == nil || slices.Contains(m.demands, d) }

// judge checks the properties of a state.
func (m *automaton) judge(s *state) *fault {
	for _, property := range []struct {
		demand
		violated func(*state) string
	}{
		{keptAddresses, m.notKept}, {oneOwner, m.disowned}, {exactCounts, m.miscounted},
		{noOverlap, overlapping}, {recovery, m.irrecoverable},
	} {
		if !m.checks(property.demand) {
			continue
		}
		if what := property.violated(s); what != "" {
			return &fault{fmt.Sprintf("%s: %s", property.demand, what), s}
		}
	}
	return nil
}

func texts(prefixes []netip.Prefix) []string {
	var out []string
	for _, prefix := range prefixes {
		out = append(out, prefix.Addr().String())
	}
	return out
}

func (m *automaton) notKept(s *state) string {
	holders := map[string]string{}
	for container, one := range s.containers {
		for _, address := range one.addresses {
			if other := holders[address]; other != "" {
				return fmt.Sprintf("%s was given to %s and to %s", address, container, other)
			}
			holders[address] = container
			if !s.objects.holds(container, address) {
				return fmt.Sprintf("%s of %s is not its any more", address, container)
			}
		}
	}
	return ""
}

func (o *objectSet) holds(container, address string) bool {
	addr := netip.MustParseAddr(address)
	for _, block := range o.blocks {
		if ordinal, ok := block.Ordinal(addr); ok && slices.Contains(block.Held(container), ordinal) {
			return true
		}
	}
	return false
}

func (m *automaton) disowned(s *state) string {
	for _, block := range s.objects.blocks {
		confirmed := 0
		for key, affinity := range s.objects.affinities {
			if key.CIDR == block.CIDR && affinity.State.Confirmed() {
				confirmed++
			}
		}
		key, owned := ownerKey(block)
		switch {
		case confirmed > 1:
			return fmt.Sprintf("%d hosts have a confirmed claim on %s", confirmed, block.CIDR)
		case owned && s.objects.affinities[key] == nil:
			return fmt.Sprintf("%s belongs to %s, which has no claim on it", block.CIDR, key.Host)
		}
	}
	return ""
}

func (m *automaton) miscounted(s *state) string {
	held := map[string]map[netip.Prefix]int{}
	for _, block := range s.objects.blocks {
		for ordinal := range block.Allocations {
			if holder := block.HolderOf(ordinal); holder != nil {
				if held[holder.HandleID] == nil {
					held[holder.HandleID] = map[netip.Prefix]int{}
				}
				held[holder.HandleID][block.CIDR]++
			}
		}
	}
	for id, blocks := range held {
		for cidr, count := range blocks {
			if handle := s.objects.handles[id]; handle == nil || handle.Blocks[cidr] < count {
				return fmt.Sprintf("%s holds %d in %s, its handle is %+v", id, count, cidr, handle)
			}
		}
	}
	if m.options.NonTransactional {
		return ""
	}
	for id, handle := range s.objects.handles {
		for cidr, count := range handle.Blocks {
			if held[id][cidr] != count {
				return fmt.Sprintf("handle %s counts %d in %s, which holds %d", id, count, cidr, held[id][cidr])
			}
		}
	}
	return ""
}

func overlapping(s *state) string {
	for i, block := range s.objects.blocks {
		for _, other := range s.objects.blocks[:i] {
			if block.CIDR.Overlaps(other.CIDR) {
				return fmt.Sprintf("%s and %s", block.CIDR, other.CIDR)
			}
		}
	}
	return ""
}

// irrecoverable lets every process die, and the runtime do what it does then:
// DEL of every container, ADD and DEL of new ones on every host. When the hosts
// leave the cluster nothing may be left.
func (m *automaton) irrecoverable(s *state) string {
	id := s.content()
	if m.recoverable[id] {
		return ""
	}
	m.recoverable[id] = true
	store := s.store.Copy()
	a := New(store, Options{Now: func() time.Time { return m.clock.Now().Add(time.Hour) }})
	for _, o := range m.remedies(s) {
		if _, err := o.run(context.Background(), store, a); err != nil {
			return fmt.Sprintf("%s fails: %v", o.name, err)
		}
	}
	left := look(store)
	if len(left.blocks)+len(left.handles)+len(left.affinities) > 0 {
		return fmt.Sprintf("%d blocks, handles %v, claims %v are left", len(left.blocks), left.handles, left.affinities)
	}
	return ""
}

func (m *automaton) remedies(s *state) (remedies []operation) {
	hosts := map[string]bool{}
	for _, o := range m.operations {
		hosts[o.host] = true
		if o.container != "" {
			remedies = append(remedies, takeFrom(o.host, o.container))
		}
	}
	sorted := slices.Sorted(maps.Keys(hosts))
	if s.objects.pool {
		for _, host := range sorted {
			remedies = append(remedies, addTo(host, "new-"+host, 1), takeFrom(host, "new-"+host))
		}
	}
	for _, host := range sorted {
		remedies = append(remedies, leave(host))
	}
	return remedies
}

// broken checks the properties of a step: what a process has written.
func (m *automaton) broken(before, after *state, p process, o operation) string {
	for key := range changed(before.objects, after.objects) {
		block := after.objects.block(key)
		was := before.objects.block(key)
		m.note(o, was, block)
		switch {
		case m.checks(poolsOnly) && block != nil && was == nil && !before.objects.pool:
			return fmt.Sprintf("%s: %s", poolsOnly, key)
		case m.checks(claimedUse) && !m.options.NonTransactional && o.kind == adding && block != nil && block.Affinity == model.AffinityHost+":"+o.host &&
			!after.objects.confirmed(block):
			return fmt.Sprintf("%s: %s", claimedUse, key)
		case m.checks(noneLeft) && o.kind != foreignWork && after.objects.abandons(before.objects, key):
			return fmt.Sprintf("%s: %s", noneLeft, key)
		case m.checks(noLostUpdate) && o.kind != foreignWork && seen(p, key) != before.objects.revisions[key.Path()]:
			return fmt.Sprintf("%s: %s", noLostUpdate, key)
		}
	}
	return ""
}

// event is what the affinity state machine is made of.
type event string

const (
	claimed        event = "claimed"
	used           event = "used"
	borrowed       event = "borrowed from"
	released       event = "released"
	reclaimedBlock event = "reclaimed"
	died           event = "left by a dead process"
)

// note counts what a write does to a block.
func (m *automaton) note(o operation, was, is *model.Block) {
	owner := model.AffinityHost + ":" + o.host
	switch {
	case was == nil && is == nil:
	case o.kind == releasing:
		m.reached[released]++
	case o.kind == adding && was == nil:
		m.reached[claimed]++
	case o.kind == adding && is == nil:
		m.reached[reclaimedBlock]++
	case o.kind == adding && is.Affinity == owner:
		m.reached[used]++
	case o.kind == adding:
		m.reached[borrowed]++
	}
}

// abandons reports whether a claim is gone whose owner still has the block.
func (o *objectSet) abandons(before *objectSet, key model.Key) bool {
	claim, ok := key.(model.AffinityKey)
	if !ok || o.affinities[claim] != nil || before.affinities[claim] == nil {
		return false
	}
	block := o.block(model.BlockKey{CIDR: claim.CIDR})
	return block != nil && block.Affinity == claim.Owner()
}

func (o *objectSet) confirmed(block *model.Block) bool {
	key, _ := ownerKey(block)
	affinity := o.affinities[key]
	return affinity != nil && affinity.State.Confirmed()
}

// changed are the objects that one step has written.
func changed(before, after *objectSet) map[model.Key]bool {
	out := map[model.Key]bool{}
	for _, pair := range [][2]*objectSet{{before, after}, {after, before}} {
		for path, revision := range pair[0].revisions {
			if key, ok := model.ParsePath(path); ok && pair[1].revisions[path] != revision {
				out[key] = true
			}
		}
	}
	return out
}

// seen is the version of an object that a process was last told of.
func seen(p process, key model.Key) datastore.Revision {
	revision := datastore.Absent
	for _, told := range p.replies {
		for i, query := range told.asked.queries {
			for _, entry := range told.answers[i].Entries {
				if entry.Key == key {
					revision = entry.Revision
				}
			}
			if query == (datastore.Get{Key: key}) && len(told.answers[i].Entries) == 0 {
				revision = datastore.Absent
			}
		}
		if told.asked.writes(key) && told.err == nil {
			revision = told.written[key]
		}
		if conflict, ok := told.err.(*datastore.ConflictError); ok && conflict.Current != nil && told.asked.writes(key) {
			revision = conflict.Current[key].Revision
		}
	}
	return revision
}

// writes reports whether the request is about an object and changes something.
func (r request) writes(key model.Key) bool {
	for _, step := range append(slices.Clone(r.steps), r.choices) {
		for _, mutation := range step {
			if mutation.Key == key {
				return true
			}
		}
	}
	return false
}
