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

// rule is one rule of our chain. Its comment tells its text, so that a look at
// the comments shows whether the table is as it should be.
type rule struct {
	text    string
	comment string
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
			rules = append(rules, newRule(family.keyword, cover(sources), cover(all)))
		}
	}
	return rules
}

func newRule(keyword string, sources, all []netip.Prefix) rule {
	text := keyword + " saddr " + set(sources) + " " + keyword + " daddr != " + set(all) + " masquerade"
	sum := sha256.Sum256([]byte(text))
	return rule{text: text, comment: "calico-cni " + hex.EncodeToString(sum[:8])}
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
		out[i] = r.comment
	}
	return out
}
