package ipam

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// TestBadPools: a pool that no block can be cut from is passed over with a
// warning that names it; the others work.
func TestBadPools(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, cidr string
		blockSize  int
		warning    string
	}{
		{"mask too long", "10.0.0.0/33", 26, `"10.0.0.0/33" is not a CIDR`},
		{"no CIDR", "nonsense", 26, `"nonsense" is not a CIDR`},
		{"host bits", "10.77.0.1/24", 26, "has host bits set"},
		{"smaller than a block", "10.77.0.0/27", 26, "smaller than one of its blocks"},
		{"block size 64", "fd00::/48", 64, "blockSize 64 is outside 116 to 128"},
		{"block size 19", "10.0.0.0/8", 19, "blockSize 19 is outside 20 to 32"},
		{"block size of the other family", "10.0.0.0/8", 122, "blockSize 122 is outside 20 to 32"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, memory.Options{})
			var log bytes.Buffer
			c.ipam = New(c.store, Options{Now: c.clock.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			c.pool("bad", test.cidr, test.blockSize)
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "none", 1))
			wantCode(t, err, cnierr.NoPool)
			c.pool("good", "10.78.0.0/24", 26)
			c.want(c.assign("worker-b", "one", 1), "10.78.0.0/26")
			for _, part := range []string{"level=WARN", "pool bad", strings.ReplaceAll(test.warning, `"`, `\"`)} {
				wantContains(t, log.String(), part)
			}
			if strings.Count(log.String(), "pool bad") != 2 {
				t.Errorf("not one warning per request:\n%s", &log)
			}
		})
	}
}

func TestOddPools(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, cidr string
		blockSize  int
		want       []string
	}{
		{"one address", "10.77.0.9/32", 32, []string{"10.77.0.9/32"}},
		{"two addresses, one block", "10.77.0.8/31", 31, []string{"10.77.0.8/31", "10.77.0.9/31"}},
		{"one IPv6 address", "fd00::9/128", 128, []string{"fd00::9/128"}},
		{"upper case", "FD00::0/64", 122, nil},
		{"a /96", "aa::/96", 122, nil},
		{"a /8", "fd00::/8", 122, nil},
		{"blocks of one IPv6 address", "fd00::/126", 128, nil},
		{"the largest blocks", "10.0.0.0/8", 20, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			forBothKinds(t, func(t *testing.T, c *cluster) {
				c.pool("pods", test.cidr, test.blockSize)
				var got []netip.Prefix
				for i := range max(2, len(test.want)) {
					r := c.request("worker-b", fmt.Sprint("c", i), 1)
					if strings.Contains(test.cidr, ":") {
						r.Count4, r.Count6 = 0, 1
					}
					result, err := c.ipam.Assign(c.ctx(), r)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, append(result.IPv4.Addresses, result.IPv6.Addresses...)...)
				}
				if test.want != nil {
					c.want(got, test.want...)
					return
				}
				pool := netip.MustParsePrefix(test.cidr)
				if len(got) != 2 || !pool.Contains(got[0].Addr()) || !pool.Contains(got[1].Addr()) || got[0].Bits() != test.blockSize {
					t.Errorf("got %v", got)
				}
			})
		})
	}
}

// TestRequestedUpperCase: CIDRs compare by value.
func TestRequestedUpperCase(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.pool("pods", "FD00::0/64", 122)
	r := c.request("worker-b", "one", 0)
	r.Count6, r.Pools6 = 1, []netip.Prefix{netip.MustParsePrefix("fd00::/64")}
	if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
		t.Error(err)
	}
}

func TestOverlappingPools(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.pool("a", "10.77.0.0/26", 26)
		c.pool("b", "10.77.0.0/24", 28)
		seen := map[netip.Addr]bool{}
		result, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 300))
		if err != nil {
			t.Fatal(err)
		}
		for _, cidr := range result.IPv4.Addresses {
			if seen[cidr.Addr()] {
				t.Errorf("%s twice", cidr)
			}
			seen[cidr.Addr()] = true
		}
		if len(seen) != 256 {
			t.Errorf("%d addresses", len(seen))
		}
	})
}

// TestExhaustionTellsWhy: one reason per pool, from what was read anyway.
func TestExhaustionTellsWhy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.pool("a-full", "10.77.0.0/26", 26)
	c.pool("b-off", "10.78.0.0/26", 26, `"disabled":true`)
	c.pool("c-node", "10.79.0.0/26", 26, `"nodeSelector":"has(rack)"`)
	c.pool("d-space", "10.80.0.0/26", 26, `"namespaceSelector":"has(team)"`)
	c.pool("e-use", "10.81.0.0/26", 26, `"allowedUses":["Tunnel"]`)
	c.pool("f-manual", "10.82.0.0/26", 26, `"assignmentMode":"Manual"`)
	c.plant(model.ResourceKey{Kind: model.KindIPPool, Name: "g-going"},
		`{"metadata":{"name":"g-going","deletionTimestamp":"2026-03-04T05:06:07Z"},"spec":{"cidr":"10.83.0.0/26"}}`)
	c.fullBlock("worker-a", netip.MustParsePrefix("10.77.0.0/26"))
	result, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, result.Err(), cnierr.AddressesExhausted)
	wantText(t, result.Err(),
		"failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.77.0.0/26]",
		"pool a-full (10.77.0.0/26): full (1 blocks)", "pool b-off (10.78.0.0/26): disabled",
		`pool c-node (10.79.0.0/26): its nodeSelector "has(rack)" does not select node worker-b`,
		`pool d-space (10.80.0.0/26): its namespaceSelector "has(team)" does not select the namespace`,
		"pool e-use (10.81.0.0/26): not for use Workload (allowedUses: [Tunnel])",
		"pool f-manual (10.82.0.0/26): used only by who asks for it", "pool g-going (10.83.0.0/26): disabled")
}

// TestLimitTellsWhy: also where a limit is in the way, each pool's reason is
// told.
func TestLimitTellsWhy(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"limit reached":               `{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":1}`,
		"no new block may be claimed": `{"strict_affinity":true}`,
	} {
		c := newCluster(t, memory.Options{})
		c.p26()
		c.pool("off", "10.78.0.0/24", 26, `"disabled":true`)
		c.fullBlock("worker-b", netip.MustParsePrefix("10.77.0.0/26"))
		c.config(config)
		_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
		wantText(t, err, "pool pods (10.77.0.0/24): "+name, "pool off (10.78.0.0/24): disabled")
	}
}

func TestUnparsableSelector(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26(`"nodeSelector":"has("`)
	_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
	wantText(t, err, "pool pods (10.77.0.0/24)", "nodeSelector")
	wantCode(t, err, cnierr.NoPool)
}

func TestReservationMistake(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	r := c.request("worker-b", "one", 1)
	r.Reserve = &Reservation{}
	_, err := c.ipam.Assign(c.ctx(), r)
	wantText(t, err, "HostReservedAttr has wrong parameters")
}
