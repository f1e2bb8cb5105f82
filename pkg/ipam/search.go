package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// How many of the host's own blocks are read at once, and how many candidates
// are tried on engines that cannot list ranges of keys (IPAM contract 4 E,
// 5.1).
const (
	ownBatch                 = 8
	ownBatchNonTransactional = 2
	firstCandidates          = 4
	drawnCandidates          = 16
)

// search is the decision for one family of a request: which blocks give the
// addresses. It is made afresh from the facts until it needs no more of them.
type search struct {
	request       *Request
	family        model.Family
	facts         *facts
	draft         *draft
	transactional bool

	pools  []pool
	owned  int
	result *Assignment

	// needs are to be read, side is to be written, before the decision can be
	// taken.
	needs []datastore.Query
	side  *plan
	// more is true if the draft is as large as one write should be.
	more bool
	// ensure asks for a block, not for addresses; ensured is the block.
	ensure  bool
	ensured netip.Prefix
}

func (s *search) waiting() bool { return len(s.needs) > 0 || s.side != nil }

// remaining is how many addresses, or blocks to ensure, are still wanted.
func (s *search) remaining() int {
	if s.ensure {
		if s.ensured.IsValid() {
			return 0
		}
		return 1
	}
	return s.result.Requested - len(s.result.Addresses)
}

// run decides. An error is what the request fails with once the draft, which
// may hold some addresses, is written.
func (s *search) run() error {
	s.begin()
	if err := s.choosePools(); err != nil {
		return err
	}
	if s.catchUp(); s.waiting() {
		return nil
	}
	s.useOwn()
	if s.remaining() > 0 && !s.waiting() && s.outdated() {
		return nil
	}
	for s.remaining() > 0 && !s.waiting() {
		if s.draft.full() {
			s.more = true
			return nil
		}
		if err := s.mayClaim(); err != nil {
			return err
		}
		if s.claimMissing() || s.waiting() {
			continue
		}
		if s.walkOn() || s.useWalked() {
			continue
		}
		s.sayFull()
		break
	}
	return nil
}

func (s *search) begin() {
	*s.result = Assignment{Family: s.family, Requested: s.request.count(s.family)}
	for _, cidr := range sortedPrefixes(s.facts.obtained) {
		if model.FamilyOf(cidr.Addr()) != s.family {
			continue
		}
		s.record(cidr, s.facts.obtained[cidr])
		if s.facts.unconfirmed(cidr) {
			s.draft.own(cidr)
		}
	}
}

func (s *search) record(cidr netip.Prefix, addresses []netip.Addr) {
	p, _ := poolOf(s.facts.pools, cidr.Addr())
	for _, addr := range addresses {
		s.result.Addresses = append(s.result.Addresses, netip.PrefixFrom(addr, cidr.Bits()))
		s.result.Pools = append(s.result.Pools, p.IPPool)
	}
}

func (s *search) choosePools() (err error) {
	s.pools, s.result.Reasons, err = choosePools(s.facts.pools, poolChoice{
		family: s.family, requested: s.request.pools(s.family), reserve: s.request.reserve(s.family),
		use: s.request.Use, host: s.request.Host,
		node: s.facts.node.Metadata.Labels, namespace: s.request.NamespaceLabels,
	})
	return err
}

// useOwn takes what the host's own blocks have. Blocks of another size than
// their pool's, and those whose pool no longer selects the node, only wait to
// be empty.
func (s *search) useOwn() {
	var usable, leaving []netip.Prefix
	for _, cidr := range s.facts.own(s.family) {
		p, candidate := poolOf(s.pools, cidr.Addr())
		switch {
		case candidate && p.BlockSize == cidr.Bits():
			usable = append(usable, cidr)
		case candidate || s.unselected(cidr):
			leaving = append(leaving, cidr)
		}
	}
	s.owned = len(usable)
	for i, cidr := range usable {
		if s.remaining() == 0 || s.draft.full() || len(s.needs) > 0 {
			break
		}
		if s.facts.reserved.covers(cidr) {
			continue
		}
		if !s.facts.known(cidr) {
			s.readOwn(usable[i:], leaving)
			return
		}
		s.useOwnBlock(cidr)
	}
	if s.side == nil && !s.readBlocks(leaving) {
		s.release(leaving)
	}
}

// unselected reports whether the block lies in an enabled pool that no longer
// selects this node.
func (s *search) unselected(cidr netip.Prefix) bool {
	p, ok := poolOf(enabled(s.facts.pools), cidr.Addr())
	return ok && !selectsNode(p, s.facts.node)
}

// selectsNode is true also if the selector does not parse: nothing is released
// on a guess.
func selectsNode(p pool, node *model.Node) bool {
	ok, err := selects(p, "nodeSelector", p.NodeSelector, node.Metadata.Labels)
	return ok || err != nil
}

func (s *search) readOwn(usable, leaving []netip.Prefix) {
	size := ownBatchNonTransactional
	if s.transactional {
		size = ownBatch
	}
	for _, cidr := range usable {
		if len(s.needs) < size && !s.facts.known(cidr) && !s.facts.reserved.covers(cidr) {
			s.needs = append(s.needs, datastore.Get{Key: model.BlockKey{CIDR: cidr}})
		}
	}
	s.readBlocks(leaving)
}

// readBlocks asks for the blocks not read yet and reports whether there are
// any.
func (s *search) readBlocks(cidrs []netip.Prefix) bool {
	asked := false
	for _, cidr := range cidrs {
		if !s.facts.known(cidr) {
			asked = true
			s.needs = append(s.needs, datastore.Get{Key: model.BlockKey{CIDR: cidr}})
		}
	}
	return asked
}

// useOwnBlock acts by the table of IPAM contract 3.2.
func (s *search) useOwnBlock(cidr netip.Prefix) {
	block := s.facts.blocks[cidr].value
	switch {
	case s.facts.unreadable[cidr]:
	case block == nil && !s.transactional && !s.facts.knowsLeftovers(s.poolAt(cidr)):
		s.needs = append(s.needs, allKeys(s.family))
	case block == nil && !s.facts.census.overlaps(cidr):
		s.claim(cidr, s.poolAt(cidr))
	case block == nil || block.Affinity != s.facts.owner():
		s.owned--
		s.drop(cidr)
	case s.ensure || block.Available(s.facts.reserved.contains) > 0:
		s.take(cidr, s.draft.own(cidr))
	}
}

func (s *search) poolAt(cidr netip.Prefix) pool {
	p, _ := poolOf(s.pools, cidr.Addr())
	return p
}

// drop plans the end of an affinity whose block is not ours.
func (s *search) drop(cidr netip.Prefix) {
	if s.side == nil {
		s.side = releaseAffinity(s.facts, s.facts.affinityKey(cidr))
	}
}

func (s *search) release(leaving []netip.Prefix) {
	for _, cidr := range leaving {
		block := s.facts.blocks[cidr].value
		if s.facts.unreadable[cidr] {
			continue
		}
		if block == nil || block.Affinity != s.facts.owner() || block.Empty() {
			s.drop(cidr)
		}
	}
}

func (s *search) take(cidr netip.Prefix, b *blockDraft) {
	if s.ensure {
		s.ensured = cidr
		return
	}
	s.record(cidr, s.draft.allocate(b, s.remaining()))
}

func (s *search) claim(cidr netip.Prefix, p pool) {
	s.take(cidr, s.draft.claimed(cidr, p, s.request.reserve(s.family)))
}

// blockLimit is how many blocks a host may own (IPAM contract 4 D).
func blockLimit(request, cluster int) int {
	const standard = 20
	switch {
	case request > 0 && cluster > 0:
		return min(request, cluster)
	case request > 0:
		return request
	case cluster > 0:
		return cluster
	}
	return standard
}

func (s *search) mayClaim() error {
	if s.ensure {
		return nil
	}
	limit := blockLimit(s.request.MaxBlocks, s.facts.config.MaxBlocksPerHost)
	if s.owned >= limit {
		s.say(fmt.Sprintf("Need to allocate an IPAM block but could not - limit of %d blocks reached for this node", limit))
		return cnierr.New(cnierr.BlockLimit, "cannot allocate new block due to per host block limit: host %s has %d of at most %d blocks, and they are full; %s",
			s.facts.host, s.owned, limit, s.because("limit reached"))
	}
	if !s.facts.config.AutoAllocateBlocks {
		return cnierr.New(cnierr.AddressesExhausted, "failed to find or claim a block: the blocks of host %s are full and autoAllocateBlocks is off; %s",
			s.facts.host, s.because("no new block may be claimed"))
	}
	return nil
}

// because tells why each pool gave no address: the candidates for one reason,
// the others for theirs.
func (s *search) because(reason string) string {
	reasons := slices.Clone(s.result.Reasons)
	for _, p := range s.pools {
		reasons = append(reasons, p.String()+": "+reason)
	}
	return strings.Join(reasons, "; ")
}

func (s *search) say(message string) { s.result.Messages = append(s.result.Messages, message) }

// claimMissing claims the first block that does not exist, of the first pool
// that has one (IPAM contract 5).
func (s *search) claimMissing() bool {
	if s.finishReclaim(); s.waiting() {
		return false
	}
	for _, p := range s.pools {
		found := s.findMissing(p)
		if s.waiting() {
			return false
		}
		if !found.IsValid() {
			continue
		}
		if s.facts.known(found) && s.facts.blocks[found].value != nil {
			s.take(found, s.draft.own(found))
		} else {
			s.claim(found, p)
		}
		s.owned++
		return true
	}
	return false
}

// useWalked takes addresses of what the walk has found and returns true if
// that is enough for now or there is more to see.
func (s *search) useWalked() bool {
	w := s.facts.walks[s.family]
	for _, cidr := range w.mine {
		if block := s.facts.blocks[cidr].value; s.remaining() > 0 && block != nil && block.Affinity == s.facts.owner() {
			s.take(cidr, s.draft.own(cidr))
		}
	}
	if !s.facts.config.StrictAffinity && !s.ensure {
		s.borrow(w.lenders)
	}
	if s.remaining() > 0 && !s.draft.full() {
		w.resume()
		return !w.done
	}
	return true
}

// borrow takes addresses from blocks of other hosts (IPAM contract 3.5).
func (s *search) borrow(lenders []netip.Prefix) {
	for _, cidr := range lenders {
		if s.remaining() == 0 || s.draft.full() {
			return
		}
		if block := s.facts.blocks[cidr].value; block != nil && block.Available(s.facts.reserved.contains) > 0 {
			s.take(cidr, s.draft.existing(cidr))
		}
	}
}

// sayFull tells why there are not more addresses.
func (s *search) sayFull() {
	if s.facts.config.StrictAffinity {
		s.say("No more free affine blocks and strict affinity enabled")
	} else {
		s.say("No IPs available in pools: [" + strings.Join(s.cidrs(), " ") + "]")
	}
	for _, p := range s.pools {
		s.result.Reasons = append(s.result.Reasons, fmt.Sprintf("%s: full (%s blocks)", p, p.blocks().count().big()))
	}
}

func (s *search) cidrs() []string {
	var out []string
	for _, p := range s.pools {
		out = append(out, p.cidr.String())
	}
	return out
}
