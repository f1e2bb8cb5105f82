package ipam

import (
	"net/netip"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Claims are blocks that a host has claimed lately, and when.
type Claims map[netip.Prefix]time.Time

// ClaimedBlocks is what the processes of one host tell each other of the blocks
// they claim. It saves lists, and only reduces contention: correctness rests on
// the datastore's guards.
type ClaimedBlocks interface {
	// Recent are the blocks claimed while any process may have been waiting for
	// its turn, and possibly others.
	Recent() Claims
	// Note is called before a block is claimed, so that nobody misses it who
	// comes after a process that dies in between.
	Note(netip.Prefix)
}

// noteMissed compares what the host had claimed before the request's first read
// with what it has now. Affinities of another moment may be missing in between.
func (e *engine) noteMissed(before Claims, host string, families ...model.Family) {
	if e.claimed == nil || before == nil {
		return
	}
	for cidr, at := range e.claimed.Recent() {
		if known, ok := before[cidr]; ok && known.Equal(at) {
			continue
		}
		e.facts.missed[cidr] = true
		for _, family := range families {
			if family == model.FamilyOf(cidr.Addr()) {
				e.facts.outdated[ownAffinities(host, family)] = true
			}
		}
	}
}

// noteClaims tells other processes what a plan is about to claim.
func (e *engine) noteClaims(p *plan) {
	if e.claimed == nil {
		return
	}
	for _, c := range p.claims {
		if c.write {
			e.claimed.Note(c.key.CIDR)
		}
	}
}

// catchUp asks for what other processes of the host have claimed since its
// affinities were read: single objects are answered faster than a list.
func (s *search) catchUp() {
	for _, cidr := range sortedPrefixes(s.facts.missed) {
		if model.FamilyOf(cidr.Addr()) == s.family {
			s.needs = append(s.needs, datastore.Get{Key: s.facts.affinityKey(cidr)}, datastore.Get{Key: model.BlockKey{CIDR: cidr}})
		}
	}
}

// outdated asks for the affinities again before anything is decided that hangs
// on all of them, a claim or a limit, and reports whether it did.
func (s *search) outdated() bool {
	own := ownAffinities(s.facts.host, s.family)
	if s.facts.outdated[own] {
		s.needs = append(s.needs, own)
	}
	return s.facts.outdated[own]
}
