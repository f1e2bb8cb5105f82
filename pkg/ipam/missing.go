package ipam

import (
	"net/netip"
	"slices"

	"calico-cni/pkg/model"
)

// findMissing returns a block of the pool that does not exist, or one of this
// host's that has room and no affinity. It may need to read first: probe, then
// list keys, each only if the one before found nothing.
func (s *search) findMissing(p pool) netip.Prefix {
	if s.facts.listed(s.family) {
		return s.firstMissing(p)
	}
	find := s.tryCandidates
	if s.transactional {
		find = s.probeRanges
	}
	found, complete := find(p)
	if found.IsValid() || complete || s.waiting() {
		return found
	}
	s.needs = append(s.needs, allKeys(s.family))
	return netip.Prefix{}
}

// firstMissing answers from a list of all keys.
func (s *search) firstMissing(p pool) (found netip.Prefix) {
	start := newDraw(p.blocks(), s.facts.host, s.facts.now).next()
	searchOrder(p.blocks(), start, uint128{}, s.facts.reserved, func(cidr netip.Prefix) bool {
		if s.free(cidr) {
			found = cidr
		}
		return !found.IsValid()
	})
	return found
}

// free reports whether nothing known speaks against claiming a block.
func (s *search) free(cidr netip.Prefix) bool {
	if s.facts.census.overlaps(cidr) || s.facts.affinities[s.facts.affinityKey(cidr)].value != nil || s.facts.reserved.covers(cidr) {
		return false
	}
	for _, other := range s.draft.order {
		if other.Overlaps(cidr) {
			return false
		}
	}
	return len(s.facts.reserved) == 0 || s.newBlock(cidr).Available(s.facts.reserved.contains) > 0
}

func (s *search) newBlock(cidr netip.Prefix) *model.Block {
	return model.NewBlock(cidr, s.facts.owner(), s.facts.now, s.request.reserve(s.family))
}

// probeRanges looks for a missing block by ranges of keys.
func (s *search) probeRanges(p pool) (found netip.Prefix, complete bool) {
	question := newProbe(p, newDraw(p.blocks(), s.facts.host, s.facts.now), s.facts.reserved)
	for _, query := range question.queries {
		if _, answered := s.facts.answered[query]; !answered {
			s.needs = append(s.needs, query)
		}
	}
	if s.waiting() {
		return netip.Prefix{}, false
	}
	cut := false
	for _, cidr := range question.candidates {
		if s.cut(cidr) {
			cut = true
			continue
		}
		if s.free(cidr) {
			return cidr, false
		}
	}
	return netip.Prefix{}, question.complete && !cut
}

// cut reports whether the answer for a block's group did not hold all keys:
// the whole group then counts as taken.
func (s *search) cut(cidr netip.Prefix) bool {
	for _, query := range groupQueries(groupOf(cidr)) {
		if s.facts.answered[query].More {
			return true
		}
	}
	return false
}

// tryCandidates reads the first blocks in search order, then some drawn ones,
// for engines that answer a list only as a whole.
func (s *search) tryCandidates(p pool) (found netip.Prefix, complete bool) {
	random := newDraw(p.blocks(), s.facts.host, s.facts.now)
	start := random.next()
	var first []netip.Prefix
	travelled := searchOrder(p.blocks(), start, uint128{}, s.facts.reserved, func(cidr netip.Prefix) bool {
		if s.facts.affinities[s.facts.affinityKey(cidr)].value == nil && !s.draft.holds(cidr) {
			first = append(first, cidr)
		}
		return len(first) < firstCandidates
	})
	if found := s.tried(p, first); found.IsValid() || s.waiting() {
		return found, false
	}
	if !travelled.less(p.blocks().count()) {
		return netip.Prefix{}, true
	}
	return s.tried(p, s.drawn(p, random, first)), false
}

func (s *search) drawn(p pool, random *draw, first []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for tries := 0; len(out) < drawnCandidates && tries < 4*drawnCandidates; tries++ {
		cidr := p.blocks().at(random.next())
		if s.facts.reserved.covers(cidr) || s.facts.affinities[s.facts.affinityKey(cidr)].value != nil ||
			slices.Contains(first, cidr) || slices.Contains(out, cidr) {
			continue
		}
		out = append(out, cidr)
	}
	return out
}

// tried picks one of the candidates, reading them first.
func (s *search) tried(p pool, candidates []netip.Prefix) netip.Prefix {
	if s.readBlocks(candidates) {
		return netip.Prefix{}
	}
	for _, cidr := range candidates {
		block := s.facts.blocks[cidr].value
		if block != nil && block.Affinity == s.facts.owner() && !s.draft.holds(cidr) &&
			block.Available(s.facts.reserved.contains) > 0 {
			return cidr
		}
		if block != nil || !s.free(cidr) {
			continue
		}
		if !s.facts.knowsLeftovers(p) {
			// Blocks of another size show only in the list, which answers
			// from now on.
			s.needs = append(s.needs, allKeys(s.family))
			return netip.Prefix{}
		}
		return cidr
	}
	return netip.Prefix{}
}
