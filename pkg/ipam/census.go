package ipam

import (
	"net/netip"

	"calico-cni/pkg/model"
)

// largestHostBits bounds the blocks that a leftover can be: 2^16 addresses.
const largestHostBits = 16

// census is the set of blocks known to exist, of whatever size.
type census struct {
	exists map[netip.Prefix]bool
	// within counts, per larger prefix, the existing blocks inside it.
	within map[netip.Prefix]int
}

func newCensus() *census {
	return &census{exists: map[netip.Prefix]bool{}, within: map[netip.Prefix]int{}}
}

func (c *census) add(cidr netip.Prefix) {
	if !c.exists[cidr] {
		c.exists[cidr] = true
		c.count(cidr, 1)
	}
}

func (c *census) remove(cidr netip.Prefix) {
	if c.exists[cidr] {
		delete(c.exists, cidr)
		c.count(cidr, -1)
	}
}

func (c *census) count(cidr netip.Prefix, n int) {
	for _, ancestor := range ancestors(cidr, largestHostBits) {
		c.within[ancestor] += n
	}
}

// overlaps reports whether cidr, a smaller block inside it, or a larger one
// round it exists.
func (c *census) overlaps(cidr netip.Prefix) bool {
	if c.exists[cidr] || c.within[cidr] > 0 {
		return true
	}
	for _, ancestor := range ancestors(cidr, largestHostBits) {
		if c.exists[ancestor] {
			return true
		}
	}
	return false
}

// holding returns the block that an address lies in.
func (c *census) holding(addr netip.Addr) (netip.Prefix, bool) {
	single := netip.PrefixFrom(addr, addr.BitLen())
	for _, cidr := range append(ancestors(single, largestHostBits), single) {
		if c.exists[cidr] {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}

// ancestors returns the larger prefixes round cidr that hold at most
// 2^hostBits addresses, the largest first.
func ancestors(cidr netip.Prefix, hostBits int) []netip.Prefix {
	var out []netip.Prefix
	for bits := cidr.Addr().BitLen() - hostBits; bits < cidr.Bits(); bits++ {
		out = append(out, netip.PrefixFrom(cidr.Addr(), bits).Masked())
	}
	return out
}

// coveringHostBits is the size of the largest block a pool can have: 2^12
// addresses, that is /20 and /116 (datastore contract 4.1).
const coveringHostBits = 12

// coveringBlocks are the keys of all blocks that would hold cidr and more. No
// block may be claimed while one of them exists (IPAM contract 5.2).
func coveringBlocks(cidr netip.Prefix) []model.Key {
	var keys []model.Key
	for _, ancestor := range ancestors(cidr, coveringHostBits) {
		keys = append(keys, model.BlockKey{CIDR: ancestor})
	}
	return keys
}
