package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestProbeSucceeds: one host after the other claims one block of a pool. The
// first probe has to find a free one in over 99 % of the claims with the pool
// 90 % used, and in over 95 % with 95 % used (IPAM contract 5.1).
func TestProbeSucceeds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cidr string
		bits int
	}{{"10.76.0.0/14", 26}, {"10.77.0.0/16", 26}, {"fd00:77:1::/108", 122}}
	for _, test := range tests {
		t.Run(test.cidr, func(t *testing.T) {
			t.Parallel()
			p := testPool(t, test.cidr, test.bits)
			all := p.blocks().count().limited(1 << 20)
			taken := newCensus()
			hosts := 0
			claims := func(upTo int) (found, tried int) {
				for len(taken.exists) < upTo {
					hosts++
					tried++
					cidr, ok := firstFree(p, fmt.Sprint("node-", hosts), taken)
					if ok {
						found++
						taken.add(cidr)
					}
					if tried > 2*all {
						t.Fatal("the pool does not fill")
					}
				}
				return found, tried
			}
			claims(all * 89 / 100)
			for _, stage := range []struct{ used, percent int }{{91, 99}, {94, 97}, {96, 94}} {
				found, tried := claims(all * stage.used / 100)
				if found*100 < tried*stage.percent {
					t.Errorf("up to %d %% used: %d of %d probes found a block", stage.used, found, tried)
				}
			}
		})
	}
}

func firstFree(p pool, host string, taken *census) (netip.Prefix, bool) {
	for _, candidate := range newProbe(p, newDraw(p.blocks(), host, time.Time{}), nil).candidates {
		if !taken.overlaps(candidate) {
			return candidate, true
		}
	}
	return netip.Prefix{}, false
}

// TestCutRange: a range with more keys than are asked for proves nothing, and
// the list of keys answers instead.
func TestCutRange(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.pool("pods", "fd00::/119", 128)
		blocks := blockRange{netip.MustParsePrefix("fd00::/119"), 128}
		const free = 77
		for i := range 512 {
			if i != free {
				c.fullBlock("worker-a", blocks.at(newUint128(i)))
			}
		}
		r := c.request("worker-b", "one", 0)
		r.Count6 = 1
		result, err := c.ipam.Assign(c.ctx(), r)
		if err != nil {
			t.Fatal(err)
		}
		c.want(result.IPv6.Addresses, "fd00::4d/128")
		c.release("one")
		if err := c.ipam.RemoveHost(c.ctx(), "worker-b"); err != nil {
			t.Fatal(err)
		}
		got, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "two", "fd00::4d"))
		if err != nil || got.String() != "fd00::4d/128" {
			t.Errorf("%s, %v", got, err)
		}
	})
}
