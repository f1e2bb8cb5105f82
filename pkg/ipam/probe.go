package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Bounds of a probe by ranges of keys (IPAM contract 5.1).
const (
	groupHostBits   = 8
	probeCandidates = 128
	probeRanges     = 32
	rangeKeys       = 300
)

// probe is a question for some of a pool's blocks, and the order in which the
// missing ones are to be taken.
type probe struct {
	queries    []datastore.Query
	candidates []netip.Prefix
	// complete: the candidates are all blocks of the pool that may be used.
	complete bool
}

// groupOf is the range of addresses that one question answers for: the aligned
// 256 addresses round a block, or the block itself if it is larger.
func groupOf(cidr netip.Prefix) netip.Prefix {
	bits := cidr.Addr().BitLen() - groupHostBits
	if cidr.Bits() <= bits {
		return cidr
	}
	return netip.PrefixFrom(cidr.Addr(), bits).Masked()
}

// groupQueries asks for the keys of all blocks that begin in a group.
func groupQueries(group netip.Prefix) []datastore.Query {
	if group.Addr().Is4() {
		return groupQueries4(group)
	}
	return groupQueries6(group)
}

func groupQueries4(group netip.Prefix) []datastore.Query {
	parts := blockRange{pool: group, bits: 32 - groupHostBits}
	var queries []datastore.Query
	for n := range parts.count().limited(probeRanges) {
		text := parts.at(newUint128(n)).Addr().String()
		queries = append(queries, keyRange(model.IPv4, text[:strings.LastIndexByte(text, '.')+1]))
	}
	return queries
}

// groupQueries6 uses that addresses differing only in their last 16 bits have
// one text up to there, unless those bits are 0: then the text may be
// compressed in another place.
func groupQueries6(group netip.Prefix) []datastore.Query {
	first, last := group.Addr().As16(), lastAddress(group).As16()
	lastText := lastAddress(group).String()
	stem := lastText[:strings.LastIndexByte(lastText, ':')+1]
	shared := ""
	if first[14] >= 0x10 {
		low := fmt.Sprintf("%02x%02x", first[14], first[15])
		high := fmt.Sprintf("%02x%02x", last[14], last[15])
		for i := 0; i < len(low) && low[i] == high[i]; i++ {
			shared = low[:i+1]
		}
	}
	queries := []datastore.Query{keyRange(model.IPv6, stem+shared)}
	if first[14] == 0 && first[15] == 0 {
		queries = append(queries, keyRange(model.IPv6, group.Addr().String()+"-"))
	}
	return queries
}

func keyRange(family model.Family, prefix string) datastore.Query {
	return datastore.ListBlocks{Family: family, TextPrefix: prefix, KeysOnly: true, Limit: rangeKeys}
}

// groupPlan picks the groups of a pool to ask for.
type groupPlan struct {
	blocks   blockRange
	groups   blockRange
	reserved spans
	chosen   []netip.Prefix
	queries  []datastore.Query
}

func newGroupPlan(p pool, reserved spans) *groupPlan {
	group := groupOf(p.blocks().at(uint128{}))
	parts := blockRange{pool: p.cidr, bits: group.Bits()}
	if p.cidr.Bits() > group.Bits() {
		parts.pool = group
	}
	return &groupPlan{blocks: p.blocks(), groups: parts, reserved: reserved}
}

// budget is how many groups one read may ask for.
func (g *groupPlan) budget() int {
	perGroup := max(1, 1<<max(0, g.blocks.bits-g.groups.bits))
	// The last group stands for all: few need a second range.
	ranges := len(groupQueries(g.groups.at(g.groups.count().sub(newUint128(1)))))
	return max(1, min(max(2, probeCandidates/perGroup), probeRanges/ranges))
}

// add takes a group, unless it was taken before.
func (g *groupPlan) add(group netip.Prefix) bool {
	if slices.Contains(g.chosen, group) {
		return false
	}
	g.chosen = append(g.chosen, group)
	g.queries = append(g.queries, groupQueries(group)...)
	return true
}

// sweep takes up to count groups in search order, passing over reserved ones.
// It reports whether it came round the whole pool.
func (g *groupPlan) sweep(start netip.Addr, count int) (all bool) {
	first := g.groups.index(start)
	index, travelled := first, uint128{}
	for len(g.chosen) < count {
		step := newUint128(1)
		group := g.groups.at(index)
		if held, ok := g.reserved.covering(group); ok {
			step = g.groups.covered(index, held)
		} else {
			g.add(group)
		}
		travelled = travelled.add(step)
		if !travelled.less(g.groups.count()) {
			return true
		}
		index = g.groups.next(index.add(step).sub(newUint128(1)))
	}
	return false
}

// members are the blocks of the pool in a group.
func (g *groupPlan) members(group netip.Prefix) []netip.Prefix {
	if group.Bits() >= g.blocks.bits {
		return []netip.Prefix{group}
	}
	if g.blocks.pool.Bits() > group.Bits() {
		group = g.blocks.pool
	}
	inside := blockRange{pool: group, bits: g.blocks.bits}
	out := make([]netip.Prefix, inside.count().limited(1<<groupHostBits))
	for i := range out {
		out[i] = inside.at(newUint128(i))
	}
	return out
}

// newProbe plans a probe by ranges of keys: a quarter of the groups in search
// order, the others drawn, since a pool that many hosts use is full in runs
// (IPAM contract 5.1 step 1).
func newProbe(p pool, random *draw, reserved spans) probe {
	g := newGroupPlan(p, reserved)
	start := random.next()
	budget := g.budget()
	if !newUint128(budget).less(g.groups.count()) {
		g.sweep(g.blocks.at(start).Addr(), budget)
		return probe{queries: g.queries, candidates: g.inSearchOrder(g.chosen, start), complete: true}
	}
	complete := g.sweep(g.blocks.at(start).Addr(), max(1, budget/4))
	candidates := g.inSearchOrder(g.chosen, start)
	for tries := 0; !complete && len(g.chosen) < budget && len(g.queries) < probeRanges && tries < 4*budget; tries++ {
		drawn := g.blocks.at(random.next())
		group := groupOf(drawn)
		if g.reserved.covers(group) || !g.add(group) {
			continue
		}
		candidates = append(candidates, drawn)
		for _, member := range g.members(group) {
			if member != drawn {
				candidates = append(candidates, member)
			}
		}
	}
	return probe{queries: g.queries, candidates: candidates, complete: complete}
}

func (g *groupPlan) inSearchOrder(groups []netip.Prefix, start uint128) []netip.Prefix {
	var out []netip.Prefix
	for _, group := range groups {
		out = append(out, g.members(group)...)
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		x := g.blocks.distance(start, g.blocks.index(a.Addr()))
		y := g.blocks.distance(start, g.blocks.index(b.Addr()))
		switch {
		case x.less(y):
			return -1
		case y.less(x):
			return 1
		}
		return 0
	})
	return out
}
