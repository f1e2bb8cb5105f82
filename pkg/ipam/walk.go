package ipam

import (
	"net/netip"
	"strings"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Bounds of the walk over a full cluster's blocks (IPAM contract 5.1 step 3).
const (
	walkBatch                 = 32
	walkBatchNonTransactional = 16
	walkPastFirstLender       = 256
	reclaimAge                = 60 * time.Second
)

// walkSize is how many blocks are read at once where all are looked at.
func walkSize(transactional bool) int {
	if transactional {
		return walkBatch
	}
	return walkBatchNonTransactional
}

// walk is how far the search for blocks to reclaim or to borrow from has got.
// Only one batch of blocks, and those that could lend, are kept.
type walk struct {
	pool      int
	travelled uint128
	batch     []netip.Prefix
	mine      []netip.Prefix
	lenders   []netip.Prefix
	// past counts the blocks looked at since a new lender was found; known
	// are the lenders before that one.
	past, known int
	// done: the walk has found what it may look for; ended: it has seen all.
	done, ended bool
}

// resume makes the walk look further once its lenders have given all they had.
func (w *walk) resume() { w.done, w.past, w.known = w.ended, 0, len(w.lenders) }

// searchOrder visits the blocks of a pool from its start index round, passing
// over reserved ones, beginning travelled blocks after the start. It ends when
// visit returns false, and returns how far it got.
func searchOrder(blocks blockRange, start, travelled uint128, reserved spans, visit func(netip.Prefix) bool) uint128 {
	count := blocks.count()
	for travelled.less(count) {
		index := start.add(travelled)
		if !index.less(count) {
			index = index.sub(count)
		}
		cidr := blocks.at(index)
		step := newUint128(1)
		if held, ok := reserved.covering(cidr); ok {
			step = blocks.covered(index, held)
		} else if !visit(cidr) {
			return travelled
		}
		travelled = travelled.add(step)
	}
	return travelled
}

// nextBatch returns the next blocks to read, of the pools in their order.
func (s *search) nextBatch(w *walk) []netip.Prefix {
	size := walkSize(s.transactional)
	var batch []netip.Prefix
	for w.pool < len(s.pools) && len(batch) < size {
		blocks := s.pools[w.pool].blocks()
		start := newDraw(blocks, s.facts.host, s.facts.now).next()
		last := false
		w.travelled = searchOrder(blocks, start, w.travelled, s.facts.reserved, func(cidr netip.Prefix) bool {
			if last {
				return false
			}
			if s.facts.census.exists[cidr] && !s.draft.holds(cidr) && s.facts.affinities[s.facts.affinityKey(cidr)].value == nil {
				batch = append(batch, cidr)
				last = len(batch) == size
			}
			return true
		})
		if !w.travelled.less(blocks.count()) {
			w.pool, w.travelled = w.pool+1, uint128{}
		}
	}
	return batch
}

// walkOn looks at the blocks of others, batch after batch: it uses one of ours
// that has no affinity, asks for an empty old one to be released, and
// remembers those that could lend. It returns true if the decision has to be
// taken anew.
func (s *search) walkOn() (again bool) {
	w := s.facts.walks[s.family]
	if w == nil {
		w = &walk{}
		s.facts.walks[s.family] = w
	}
	for !w.done {
		if w.batch == nil {
			if w.batch = s.nextBatch(w); w.batch == nil {
				w.done, w.ended = true, true
				break
			}
		}
		if s.readBlocks(w.batch) {
			return true
		}
		for _, cidr := range w.batch {
			if s.inspect(w, cidr) {
				return true
			}
		}
		w.endBatch(s.facts)
	}
	return false
}

// inspect looks at one block of the walk and returns true if something has to
// be read or written, or can be claimed, before the walk goes on.
func (s *search) inspect(w *walk, cidr netip.Prefix) (stop bool) {
	block := s.facts.blocks[cidr].value
	switch {
	case block == nil:
		return s.free(cidr) // deleted by now: the search for missing blocks takes it
	case block.Available(s.facts.reserved.contains) == 0:
	case block.Affinity == s.facts.owner():
		w.remember(&w.mine, cidr)
	case s.reclaimable(block):
		return s.reclaim(block)
	}
	return false
}

// reclaimable reports whether an empty block may be taken from its owner
// (IPAM contract 5).
func (s *search) reclaimable(block *model.Block) bool {
	return strings.HasPrefix(block.Affinity, model.AffinityHost+":") && block.Empty() &&
		(block.ClaimTime.IsZero() || s.facts.now.Sub(block.ClaimTime) >= reclaimAge)
}

// reclaim plans the release of another host's empty block. Its affinity has to
// be read for that.
func (s *search) reclaim(block *model.Block) (stop bool) {
	key := model.AffinityKey{Type: model.AffinityHost, Host: strings.TrimPrefix(block.Affinity, model.AffinityHost+":"), CIDR: block.CIDR}
	if _, known := s.facts.affinities[key]; !known {
		s.needs = append(s.needs, datastore.Get{Key: key})
		return true
	}
	s.side = releaseAffinity(s.facts, key)
	return true
}

// finishReclaim plans the end of another host's affinity if only its block was
// deleted, and perhaps claimed by a third, when the reclaim was interrupted.
func (s *search) finishReclaim() {
	for _, key := range s.facts.affinityKeys() {
		affinity := s.facts.affinities[key]
		block, read := s.facts.blocks[key.CIDR]
		lost := block.value == nil || block.value.Affinity != "" && block.value.Affinity != key.Owner()
		if key.Host != s.facts.host && affinity.value != nil && read && lost {
			s.side = releaseAffinity(s.facts, key)
			return
		}
	}
}

func (w *walk) remember(list *[]netip.Prefix, cidr netip.Prefix) {
	for _, known := range *list {
		if known == cidr {
			return
		}
	}
	*list = append(*list, cidr)
}

// endBatch forgets the blocks of a batch that can lend nothing.
func (w *walk) endBatch(f *facts) {
	for _, cidr := range w.batch {
		block := f.blocks[cidr].value
		lends := block != nil && block.Available(f.reserved.contains) > 0 && !strings.HasPrefix(block.Affinity, model.AffinityVirtual+":")
		switch {
		case !lends:
			delete(f.blocks, cidr)
		case block.Affinity != f.owner():
			w.remember(&w.lenders, cidr)
		}
		if len(w.lenders) > w.known {
			w.past++
		}
	}
	w.batch = nil
	if w.past > walkPastFirstLender && !f.config.StrictAffinity {
		w.done = true
	}
}
