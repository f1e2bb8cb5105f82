package ipam

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func TestGroupQueries(t *testing.T) {
	t.Parallel()
	tests := []struct {
		block string
		want  []string
	}{
		{"10.77.194.64/26", []string{"10.77.194."}},
		{"10.77.194.7/32", []string{"10.77.194."}},
		{"10.77.194.0/24", []string{"10.77.194."}},
		{"10.77.194.0/23", []string{"10.77.194.", "10.77.195."}},
		{"fd00:77:1::8240/122", []string{"fd00:77:1::82"}},
		{"fd00:77:1::8200/119", []string{"fd00:77:1::8"}},
		{"fd00:77:1::1000/116", []string{"fd00:77:1::1"}},
		// Fewer than four digits: up to the last 16 bits.
		{"fd00:77:1::240/122", []string{"fd00:77:1::"}},
		{"fd00:77:1::40/122", []string{"fd00:77:1::", "fd00:77:1::-"}},
		// Without its last 16 bits this address is compressed elsewhere.
		{"1:0:0:2:3::/122", []string{"1::2:3:0:0:", "1:0:0:2:3::-"}},
		{"1:2:3:4:5:6:7:0/122", []string{"1:2:3:4:5:6:7:", "1:2:3:4:5:6:7:0-"}},
	}
	for _, test := range tests {
		var got []string
		for _, query := range groupQueries(groupOf(netip.MustParsePrefix(test.block))) {
			list := query.(datastore.ListBlocks)
			if !list.KeysOnly || list.Limit != rangeKeys {
				t.Errorf("%s: query %+v", test.block, list)
			}
			got = append(got, list.TextPrefix)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.block, got, test.want)
		}
	}
}

// TestGroupQueriesFindEveryBlock proves that the ranges of a group hold the
// key of every block that begins in it.
func TestGroupQueriesFindEveryBlock(t *testing.T) {
	t.Parallel()
	bases := []string{
		"10.77.194.0", "10.77.0.0", "255.255.255.0", "fd00:77:1::8200", "fd00:77:1::", "fd00:77:1::100", "fd00:77:1::f00",
		"fd00:77:1::1000", "1:0:0:2:3::", "1:0:0:2:3:0:0:1000", "1:2:3:4:5:6:7:0", "1:2:3:4:5:6:0:0", "aa::", "::", "::ff00", "0:0:1::",
	}
	for _, base := range bases {
		addr := netip.MustParseAddr(base)
		for hostBits := 0; hostBits <= coveringHostBits; hostBits++ {
			block := netip.PrefixFrom(addr, addr.BitLen()-hostBits).Masked()
			group := groupOf(block)
			queries := groupQueries(group)
			inside := blockRange{group, addr.BitLen()}
			for i := range inside.count().limited(1 << coveringHostBits) {
				key := strings.Replace(inside.at(newUint128(i)).String(), "/", "-", 1)
				if !slices.ContainsFunc(queries, func(q datastore.Query) bool {
					return strings.HasPrefix(key, q.(datastore.ListBlocks).TextPrefix)
				}) {
					t.Fatalf("group %s: no range of %v holds %s", group, queries, key)
				}
			}
		}
	}
}

func testPool(t *testing.T, cidr string, blockSize int) pool {
	t.Helper()
	p, err := newPool(&model.IPPool{Metadata: model.Metadata{Name: "pods"}, RawCIDR: cidr, BlockSize: blockSize}, "1")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProbe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, cidr string
		bits       int
		ranges     int // at most
		candidates int // at least
		complete   bool
		first      string
	}{
		{"/16 of /26", "10.77.0.0/16", 26, 32, 100, false, "10.77.194.0/26"},
		{"/24 of /26", "10.77.0.0/24", 26, 1, 4, true, "10.77.0.0/26"},
		{"a quarter of a group", "10.77.0.64/26", 28, 1, 4, true, "10.77.0.64/28"},
		{"/19 of /26 is answered completely", "10.77.0.0/19", 26, 32, 128, true, ""},
		{"/16 of /20", "10.77.0.0/16", 20, 32, 2, false, ""},
		{"/16 of /32", "10.77.0.0/16", 32, 2, 512, false, ""},
		{"one address", "10.77.0.9/32", 32, 1, 1, true, "10.77.0.9/32"},
		{"two addresses", "10.77.0.8/31", 32, 1, 2, true, ""},
		{"IPv6 /112", "fd00:77:1::/112", 122, 34, 100, false, "fd00:77:1::8240/122"},
		{"IPv6 /96", "aa::/96", 122, 34, 100, false, ""},
		{"IPv6 /8", "fd00::/8", 122, 34, 100, false, ""},
		{"IPv6 one address", "fd00::1/128", 128, 2, 1, true, "fd00::1/128"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := testPool(t, test.cidr, test.bits)
			host := "worker-b"
			if model.FamilyOf(p.cidr.Addr()) == model.IPv6 {
				host = "worker-c"
			}
			got := newProbe(p, newDraw(p.blocks(), host, time.Unix(0, 1)), nil)
			if len(got.queries) > test.ranges || len(got.candidates) < test.candidates || got.complete != test.complete {
				t.Errorf("%d ranges, %d candidates, complete %v", len(got.queries), len(got.candidates), got.complete)
			}
			if test.first != "" && got.candidates[0].String() != test.first {
				t.Errorf("first candidate %s, want %s", got.candidates[0], test.first)
			}
			seen := map[netip.Prefix]bool{}
			for _, candidate := range got.candidates {
				if seen[candidate] || !p.cidr.Contains(candidate.Addr()) || candidate.Bits() != test.bits {
					t.Errorf("candidate %s is twice there or not the pool's", candidate)
				}
				seen[candidate] = true
			}
		})
	}
}

// TestProbeSkipsReserved proves that reserved stretches cost no questions, and
// no time even if they hold 2^113 blocks.
func TestProbeSkipsReserved(t *testing.T) {
	t.Parallel()
	p := testPool(t, "fd00::/8", 122)
	reserved := newSpans([]netip.Prefix{netip.MustParsePrefix("fd00::/9"), netip.MustParsePrefix("fd80::/10")})
	got := newProbe(p, newDraw(p.blocks(), "worker-b", time.Time{}), reserved)
	if len(got.candidates) < 32 {
		t.Errorf("only %d candidates", len(got.candidates))
	}
	for _, candidate := range got.candidates {
		if reserved.covers(candidate) {
			t.Errorf("candidate %s is reserved", candidate)
		}
	}
	all := newProbe(p, newDraw(p.blocks(), "worker-b", time.Time{}), newSpans([]netip.Prefix{p.cidr}))
	if len(all.candidates) != 0 || !all.complete {
		t.Errorf("%d candidates in a pool that is all reserved, complete %v", len(all.candidates), all.complete)
	}
}

func TestCensus(t *testing.T) {
	t.Parallel()
	c := newCensus()
	c.add(netip.MustParsePrefix("10.77.0.16/28"))
	c.add(netip.MustParsePrefix("10.77.1.0/24"))
	c.add(netip.MustParsePrefix("fd00::/116"))
	tests := map[string]bool{
		"10.77.0.0/26": true, "10.77.0.64/26": false, "10.77.0.16/30": true, "10.77.0.0/28": false,
		"10.77.1.64/26": true, "10.77.2.0/26": false, "fd00::40/122": true, "fd00::1000/122": false,
	}
	for text, want := range tests {
		if got := c.overlaps(netip.MustParsePrefix(text)); got != want {
			t.Errorf("%s overlaps: %v, want %v", text, got, want)
		}
	}
	if got, ok := c.holding(netip.MustParseAddr("10.77.0.17")); !ok || got.String() != "10.77.0.16/28" {
		t.Errorf("10.77.0.17 lies in %s", got)
	}
	c.remove(netip.MustParsePrefix("10.77.0.16/28"))
	if c.overlaps(netip.MustParsePrefix("10.77.0.0/26")) {
		t.Error("a removed block overlaps")
	}
}
