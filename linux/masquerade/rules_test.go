package masquerade

import (
	"net/netip"
	"slices"
	"testing"
)

func pool(cidr string, nat bool) Pool {
	return Pool{CIDR: netip.MustParsePrefix(cidr), NATOutgoing: nat}
}

func TestDesiredRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		pools []Pool
		want  []string
	}{
		{"no pool", nil, nil},
		{"no natOutgoing", []Pool{pool("10.0.0.0/16", false)}, nil},
		{"invalid pool", []Pool{{NATOutgoing: true}}, nil},
		{"one", []Pool{pool("10.0.0.0/16", true)},
			[]string{"ip saddr { 10.0.0.0/16 } ip daddr != { 10.0.0.0/16 } masquerade"}},
		{"host bits", []Pool{pool("10.0.1.2/16", true)},
			[]string{"ip saddr { 10.0.0.0/16 } ip daddr != { 10.0.0.0/16 } masquerade"}},
		{"both families, one without natOutgoing", []Pool{pool("fd00::/64", true), pool("10.1.0.0/16", false), pool("10.0.0.0/16", true)},
			[]string{
				"ip saddr { 10.0.0.0/16 } ip daddr != { 10.0.0.0/16, 10.1.0.0/16 } masquerade",
				"ip6 saddr { fd00::/64 } ip6 daddr != { fd00::/64 } masquerade",
			}},
		{"nested", []Pool{pool("10.0.3.0/24", true), pool("10.0.0.0/16", true), pool("10.0.0.0/16", true), pool("10.0.0.0/24", true), pool("10.1.0.0/24", true)},
			[]string{"ip saddr { 10.0.0.0/16, 10.1.0.0/24 } ip daddr != { 10.0.0.0/16, 10.1.0.0/24 } masquerade"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, r := range desiredRules(test.pools) {
				got = append(got, r.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("rules:\n got %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestCommentTellsTheText(t *testing.T) {
	t.Parallel()
	one := desiredRules([]Pool{pool("10.0.0.0/16", true), pool("10.1.0.0/16", false)})
	same := desiredRules([]Pool{pool("10.1.0.0/16", false), pool("10.0.0.0/16", true)})
	other := desiredRules([]Pool{pool("10.0.0.0/16", true)})
	if one[0].comment() != same[0].comment() {
		t.Errorf("the order of pools changes the comment: %q, %q", one[0].comment(), same[0].comment())
	}
	if one[0].comment() == other[0].comment() {
		t.Errorf("different rules have the same comment %q", one[0].comment())
	}
}

func TestIntervals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ prefixes, want []string }{
		"one":               {[]string{"10.0.0.0/16"}, []string{"10.0.0.0-10.0.255.255"}},
		"apart":             {[]string{"10.0.0.0/16", "10.2.0.0/16"}, []string{"10.0.0.0-10.0.255.255", "10.2.0.0-10.2.255.255"}},
		"side by side":      {[]string{"10.0.0.0/16", "10.1.0.0/24", "10.1.1.0/30"}, []string{"10.0.0.0-10.1.1.3"}},
		"an address":        {[]string{"10.0.0.7/32"}, []string{"10.0.0.7-10.0.0.7"}},
		"the last":          {[]string{"255.255.255.0/24"}, []string{"255.255.255.0-255.255.255.255"}},
		"IPv6":              {[]string{"fd00::/64", "fd00:0:0:1::/112"}, []string{"fd00::-fd00:0:0:1::ffff"}},
		"all that there is": {[]string{"::/0"}, []string{"::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var prefixes []netip.Prefix
			for _, p := range test.prefixes {
				prefixes = append(prefixes, netip.MustParsePrefix(p))
			}
			var got []string
			for _, i := range intervals(prefixes) {
				got = append(got, i.first.String()+"-"+i.last.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("intervals of %v are %v, want %v", test.prefixes, got, test.want)
			}
		})
	}
}
