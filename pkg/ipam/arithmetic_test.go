package ipam

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// forEveryShape calls test for each legal pair of pool prefix and block size,
// at the bottom, at the top and in the middle of each family's addresses.
func forEveryShape(test func(cidr netip.Prefix, blockSize int)) {
	bases := []string{"0.0.0.0", "10.77.194.66", "255.255.255.255", "::", "0:0:1::", "fd00:77:1::8240", "1:2:3:4:5:6:0:0",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}
	for _, base := range bases {
		addr := netip.MustParseAddr(base)
		longest := addr.BitLen()
		for blockSize := longest - coveringHostBits; blockSize <= longest; blockSize++ {
			for bits := 0; bits <= blockSize; bits++ {
				// Far from the block's size only every seventh prefix.
				if bits+20 < blockSize && bits%7 != 0 {
					continue
				}
				test(netip.PrefixFrom(addr, bits).Masked(), blockSize)
			}
		}
	}
}

// TestEveryShapeOfPool: first and last block, their numbers, and the probe,
// whose answers tell about every candidate and fit one transaction.
func TestEveryShapeOfPool(t *testing.T) {
	t.Parallel()
	forEveryShape(func(cidr netip.Prefix, blockSize int) {
		p := pool{IPPool: &model.IPPool{BlockSize: blockSize}, cidr: cidr}
		blocks := p.blocks()
		last := blocks.count().sub(newUint128(1))
		if first := blocks.at(uint128{}); first.Addr() != cidr.Addr() || first.Bits() != blockSize || blocks.index(first.Addr()) != (uint128{}) {
			t.Errorf("%s in /%d: first block %s", cidr, blockSize, first)
		}
		end := lastAddress(blocks.at(last))
		if cidr.Bits() > 0 && (end != lastAddress(cidr) || blocks.index(end) != last) || blocks.next(last) != (uint128{}) {
			t.Errorf("%s in /%d: last block %s", cidr, blockSize, blocks.at(last))
		}
		verifyProbe(t, p)
	})
}

func verifyProbe(t *testing.T, p pool) {
	t.Helper()
	question := newProbe(p, newDraw(p.blocks(), "worker-b", time.Unix(1, 0)), nil)
	if n := len(question.queries); n == 0 || n > 128 {
		t.Errorf("%s in /%d: %d ranges", p.cidr, p.BlockSize, n)
	}
	seen := map[netip.Prefix]bool{}
	for _, cidr := range question.candidates {
		if seen[cidr] || cidr != cidr.Masked() || cidr.Bits() != p.BlockSize || !p.cidr.Contains(cidr.Addr()) {
			t.Errorf("%s in /%d: candidate %s is there twice, or no block of the pool", p.cidr, p.BlockSize, cidr)
		}
		seen[cidr] = true
		if !answered(question.queries, cidr) {
			t.Errorf("%s in /%d: no range tells whether %s exists", p.cidr, p.BlockSize, cidr)
		}
	}
	if all := p.blocks().count(); question.complete != (newUint128(len(seen)) == all) {
		t.Errorf("%s in /%d: %d candidates, complete: %v", p.cidr, p.BlockSize, len(seen), question.complete)
	}
}

// answered reports whether a block's key lies in one of the ranges.
func answered(ranges []datastore.Query, cidr netip.Prefix) bool {
	text := strings.Replace(cidr.String(), "/", "-", 1)
	for _, query := range ranges {
		if strings.HasPrefix(text, query.(datastore.ListBlocks).TextPrefix) {
			return true
		}
	}
	return false
}
