package ipam

import (
	"math/big"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// poolOfBlocks is a pool with n blocks of one /26, n a power of two.
func poolOfBlocks(n int) blockRange {
	bits := 26
	for ; n > 1; n /= 2 {
		bits--
	}
	return blockRange{pool: netip.PrefixFrom(netip.MustParseAddr("10.77.0.0"), bits).Masked(), bits: 26}
}

// TestSearchStart is the table of IPAM contract 5.
func TestSearchStart(t *testing.T) {
	t.Parallel()
	sizes := []int{2, 4, 16, 64, 256, 1024, 65536}
	tests := []struct {
		host   string
		starts []int
		block  string
	}{
		{"worker-a", []int{0, 3, 11, 18, 107, 619, 16018}, "10.77.154.192/26"},
		{"worker-b", []int{1, 0, 13, 8, 109, 776, 61037}, "10.77.194.0/26"},
		{"worker-c", []int{1, 1, 9, 9, 9, 521, 19824}, "10.77.130.64/26"},
		{"node1", []int{0, 2, 7, 26, 154, 666, 2887}, "10.77.166.128/26"},
	}
	for _, test := range tests {
		for i, size := range sizes {
			blocks := poolOfBlocks(size)
			got := newDraw(blocks, test.host, time.Time{}).next()
			if got != newUint128(test.starts[i]) {
				t.Errorf("%s, n = %d: %v, want %d", test.host, size, got, test.starts[i])
			}
			if size == 1024 && blocks.at(got).String() != test.block {
				t.Errorf("%s: %s, want %s", test.host, blocks.at(got), test.block)
			}
		}
	}
}

func TestSearchOrder(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, host, pool string
		bits             int
		reserved         []string
		want             []string
	}{
		{"wraps", "worker-c", "10.77.0.0/24", 26, nil, []string{"10.77.0.64/26", "10.77.0.128/26", "10.77.0.192/26", "10.77.0.0/26"}},
		{"IPv6", "worker-c", "fd00:77:1::/112", 122, nil, []string{"fd00:77:1::8240/122", "fd00:77:1::8280/122"}},
		{"one block", "worker-c", "10.77.0.0/26", 26, nil, []string{"10.77.0.0/26"}},
		{"reserved from the middle on", "worker-c", "10.77.0.0/24", 26, []string{"10.77.0.128/25"}, []string{"10.77.0.64/26", "10.77.0.0/26"}},
		{"partly reserved", "worker-c", "10.77.0.0/24", 26, []string{"10.77.0.64/26", "10.77.0.128/27"}, []string{"10.77.0.128/26", "10.77.0.192/26", "10.77.0.0/26"}},
		{"half of a huge pool reserved", "worker-c", "fd00::/8", 122, []string{"fd00::/9", "fd80::/9"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var reserved []netip.Prefix
			for _, text := range test.reserved {
				reserved = append(reserved, netip.MustParsePrefix(text))
			}
			blocks := blockRange{netip.MustParsePrefix(test.pool), test.bits}
			start := newDraw(blocks, test.host, time.Time{}).next()
			var got []string
			searchOrder(blocks, start, uint128{}, newSpans(reserved), func(cidr netip.Prefix) bool {
				got = append(got, cidr.String())
				return len(got) < 4 && (test.name != "IPv6" || len(got) < 2)
			})
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestBlocksOfHugePools(t *testing.T) {
	t.Parallel()
	tests := []struct {
		pool  string
		bits  int
		index *big.Int
		want  string
	}{
		{"aa::/96", 122, big.NewInt(1 << 25), "aa::8000:0/122"},
		{"fd00::/8", 122, new(big.Int).Lsh(big.NewInt(1), 113), "fd80::/122"},
		{"fd00::/8", 122, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 114), big.NewInt(1)), "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0/122"},
		{"10.0.0.0/8", 32, big.NewInt(1<<24 - 1), "10.255.255.255/32"},
		{"0.0.0.0/0", 20, big.NewInt(1<<20 - 1), "255.255.240.0/20"},
		{"fd00::1/128", 128, big.NewInt(0), "fd00::1/128"},
	}
	for _, test := range tests {
		blocks := blockRange{netip.MustParsePrefix(test.pool), test.bits}
		index := uint128FromBig(test.index)
		if got := blocks.at(index).String(); got != test.want {
			t.Errorf("block %s of %s is %s, want %s", test.index, test.pool, got, test.want)
		}
		if got := blocks.index(netip.MustParsePrefix(test.want).Addr()); got != index {
			t.Errorf("%s has index %v, want %v", test.want, got, index)
		}
		if got := newDraw(blocks, "worker-b", time.Unix(0, 1)).next(); !got.less(blocks.count()) {
			t.Errorf("%s: drew %v of %v", test.pool, got, blocks.count())
		}
	}
}

func TestUint128(t *testing.T) {
	t.Parallel()
	values := []string{"0", "1", "18446744073709551615", "18446744073709551616", "170141183460469231731687303715884105727"}
	modulus := new(big.Int).Lsh(big.NewInt(1), 128)
	for _, x := range values {
		for _, y := range values {
			a, _ := new(big.Int).SetString(x, 10)
			b, _ := new(big.Int).SetString(y, 10)
			u, v := uint128FromBig(a), uint128FromBig(b)
			checks := map[string][2]*big.Int{
				"sum":        {u.add(v).big(), new(big.Int).Mod(new(big.Int).Add(a, b), modulus)},
				"difference": {u.sub(v).big(), new(big.Int).Mod(new(big.Int).Sub(a, b), modulus)},
				"left":       {u.shiftLeft(65).big(), new(big.Int).Mod(new(big.Int).Lsh(a, 65), modulus)},
				"left 3":     {u.shiftLeft(3).big(), new(big.Int).Mod(new(big.Int).Lsh(a, 3), modulus)},
				"right":      {u.shiftRight(65).big(), new(big.Int).Rsh(a, 65)},
				"right 0":    {u.shiftRight(0).big(), a},
			}
			for name, values := range checks {
				if values[0].Cmp(values[1]) != 0 {
					t.Errorf("%s of %s and %s: %s, want %s", name, x, y, values[0], values[1])
				}
			}
			if u.less(v) != (a.Cmp(b) < 0) {
				t.Errorf("%s < %s: %v", x, y, u.less(v))
			}
		}
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	var cidrs []netip.Prefix
	for _, text := range []string{"10.0.0.0/25", "10.0.0.128/25", "10.0.0.7/32", "255.255.255.0/24", "fd00::/64", "10.0.2.0/24"} {
		cidrs = append(cidrs, netip.MustParsePrefix(text))
	}
	set := newSpans(cidrs)
	if len(set) != 4 {
		t.Errorf("%d spans, want 4: %v", len(set), set)
	}
	tests := map[string]bool{
		"10.0.0.0/24": true, "10.0.0.0/23": false, "10.0.1.0/24": false, "10.0.2.255/32": true, "9.0.0.0/8": false,
		"fd00::/64": true, "fd00::/63": false, "255.255.255.255/32": true, "::a00:0/128": false,
	}
	for text, want := range tests {
		if got := set.covers(netip.MustParsePrefix(text)); got != want {
			t.Errorf("covers %s: %v, want %v", text, got, want)
		}
	}
}

func TestTimestamps(t *testing.T) {
	t.Parallel()
	for _, nanoseconds := range []int64{0, 890000000, 123456789} {
		when := time.Date(2026, 3, 4, 5, 6, 7, int(nanoseconds), time.UTC)
		text := FormatTimestamp(when)
		if text != when.String() {
			t.Errorf("%q, want Go's default %q", text, when)
		}
		if back, err := parseTimestamp(text); err != nil || !back.Equal(when) {
			t.Errorf("%q parsed as %v, %v", text, back, err)
		}
	}
	if FormatTimestamp(time.Date(2026, 3, 4, 6, 6, 7, 0, time.FixedZone("", 3600))) != "2026-03-04 05:06:07 +0000 UTC" {
		t.Error("not in UTC")
	}
	if _, err := parseTimestamp("yesterday"); err == nil {
		t.Error("parsed")
	}
}
