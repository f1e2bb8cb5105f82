package ipam

import (
	"net/netip"
	"slices"
	"sort"
)

// span is a range of addresses of one family, both ends included.
type span struct{ first, last netip.Addr }

// spans is a set of addresses: sorted by first, neither overlapping nor
// adjoining.
type spans []span

// newSpans returns the union of the prefixes.
func newSpans(cidrs []netip.Prefix) spans {
	all := make(spans, 0, len(cidrs))
	for _, cidr := range cidrs {
		all = append(all, span{cidr.Masked().Addr(), lastAddress(cidr)})
	}
	slices.SortFunc(all, func(a, b span) int { return a.first.Compare(b.first) })
	var merged spans
	for _, next := range all {
		if n := len(merged); n > 0 && adjoin(merged[n-1], next) {
			if merged[n-1].last.Less(next.last) {
				merged[n-1].last = next.last
			}
			continue
		}
		merged = append(merged, next)
	}
	return merged
}

func adjoin(a, b span) bool {
	if a.last.BitLen() != b.first.BitLen() {
		return false
	}
	after := a.last.Next()
	return !after.IsValid() || !after.Less(b.first)
}

// holding returns the span that addr lies in.
func (s spans) holding(addr netip.Addr) (span, bool) {
	after := sort.Search(len(s), func(i int) bool { return addr.Less(s[i].first) })
	if after == 0 || s[after-1].last.Less(addr) {
		return span{}, false
	}
	return s[after-1], true
}

func (s spans) contains(addr netip.Addr) bool {
	_, ok := s.holding(addr)
	return ok
}

// covering returns the span that holds all of a prefix.
func (s spans) covering(cidr netip.Prefix) (span, bool) {
	held, ok := s.holding(cidr.Addr())
	return held, ok && !held.last.Less(lastAddress(cidr))
}

func (s spans) covers(cidr netip.Prefix) bool {
	_, ok := s.covering(cidr)
	return ok
}

// lastAddress is the highest address of a prefix.
func lastAddress(cidr netip.Prefix) netip.Addr {
	addr := cidr.Masked().Addr()
	size := powerOfTwo(addr.BitLen() - cidr.Bits()) // of everything, 2^128 is 0
	return addressOf(addressNumber(addr).add(size).sub(newUint128(1)), addr.Is4())
}
