package masquerade

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
)

// Pool is what matters of an IP pool here.
type Pool struct {
	CIDR        netip.Prefix
	NATOutgoing bool
}

// rule is one rule of our chain: what comes from the sources and goes to none
// of all pools is masqueraded.
type rule struct {
	// keyword is "ip" or "ip6".
	keyword      string
	sources, all []netip.Prefix
}

// desiredRules are the rules for the pools: one per family that has a pool with
// natOutgoing.
func desiredRules(pools []Pool) []rule {
	var rules []rule
	for _, family := range []struct {
		keyword string
		v4      bool
	}{{"ip", true}, {"ip6", false}} {
		var sources, all []netip.Prefix
		for _, pool := range pools {
			if !pool.CIDR.IsValid() || pool.CIDR.Addr().Is4() != family.v4 {
				continue
			}
			all = append(all, pool.CIDR.Masked())
			if pool.NATOutgoing {
				sources = append(sources, pool.CIDR.Masked())
			}
		}
		if len(sources) > 0 {
			rules = append(rules, rule{family.keyword, cover(sources), cover(all)})
		}
	}
	return rules
}

// String is the rule as nft(8) would show it.
func (r rule) String() string {
	return r.keyword + " saddr " + set(r.sources) + " " + r.keyword + " daddr != " + set(r.all) + " masquerade"
}

// comment tells the rule's text, so that a look at the comments shows whether
// the table is as it should be.
func (r rule) comment() string {
	sum := sha256.Sum256([]byte(r.String()))
	return "calico-cni " + hex.EncodeToString(sum[:8])
}

// cover is the smallest list of prefixes with the same addresses that needs no
// merging, in order: nftables refuses a set whose intervals overlap.
func cover(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare)
	var out []netip.Prefix
	for _, prefix := range sorted {
		if len(out) == 0 || !out[len(out)-1].Overlaps(prefix) {
			out = append(out, prefix)
		}
	}
	return out
}

// set is an anonymous set of nft(8).
func set(prefixes []netip.Prefix) string {
	names := make([]string, len(prefixes))
	for i, prefix := range prefixes {
		names[i] = prefix.String()
	}
	return "{ " + strings.Join(names, ", ") + " }"
}

// comments are those of the rules, in order.
func comments(rules []rule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = r.comment()
	}
	return out
}

// interval is a range of addresses, the last one included.
type interval struct{ first, last netip.Addr }

// intervals joins prefixes that follow each other without a gap: the kernel
// takes an end and a start at one place for an overlap. The prefixes must be
// those of a cover.
func intervals(prefixes []netip.Prefix) []interval {
	var out []interval
	for _, prefix := range prefixes {
		next := interval{prefix.Addr(), lastOf(prefix)}
		if len(out) > 0 && out[len(out)-1].last.Next() == next.first {
			out[len(out)-1].last = next.last
			continue
		}
		out = append(out, next)
	}
	return out
}

func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}
