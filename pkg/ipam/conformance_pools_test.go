package ipam

import (
	"net/netip"
	"testing"

	"calico-cni/pkg/cnierr"
)

func TestConformanceSelection(t *testing.T) {
	t.Parallel()
	requestPool := func(c *cluster, cidr string) (Result, error) {
		r := c.request("worker-b", "one", 1)
		r.Pools4 = []netip.Prefix{netip.MustParsePrefix(cidr)}
		return c.ipam.Assign(c.ctx(), r)
	}
	runScenarios(t, []scenario{
		{"IPAM/35 reservation of one address", func(t *testing.T, c *cluster) {
			c.p26()
			c.reserve(" 10.77.0.0/32", "nonsense")
			c.wantShort("worker-b", 256, 255, "No IPs available")
			c.release("many")
			got, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "two", "10.77.0.0"))
			if err != nil || got.String() != "10.77.0.0/26" {
				t.Errorf("%s, %v", got, err)
			}
		}},
		{"IPAM/36 reservation of a whole block", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "early", 1)
			c.reserve("10.77.0.0/27", "10.77.0.32/27", "10.77.0.128/26")
			c.assign("worker-a", "other", 1)
			result, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "many", 256))
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range result.IPv4.Addresses {
				if ordinal := got.Addr().As4()[3] / 64; ordinal == 0 || ordinal == 2 {
					t.Errorf("%s is reserved", got)
				}
			}
			if len(result.IPv4.Addresses) != 127 {
				t.Errorf("%d addresses", len(result.IPv4.Addresses))
			}
		}},
		{"IPAM/37 node selectors", func(t *testing.T, c *cluster) {
			for selector, matches := range map[string]bool{`zone == \"a\"`: false, `!has(zone)`: true, `zone != \"a\"`: true} {
				c.p26(`"nodeSelector":"` + selector + `"`)
				_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
				if matches && err != nil {
					t.Errorf("%s: %v", selector, err)
				}
				if !matches {
					wantCode(t, err, cnierr.NoPool)
					wantText(t, err, "no configured Calico pools for node worker-b", "does not select node worker-b")
				}
			}
		}},
		{"IPAM/38 requested pool that excludes the node", func(t *testing.T, c *cluster) {
			c.p26(`"nodeSelector":"zone == \"a\""`)
			result, err := requestPool(c, "10.77.0.0/24")
			if err != nil {
				t.Fatal(err)
			}
			c.want(result.IPv4.Addresses, "10.77.0.0/26")
		}},
		{"IPAM/39 manual pool", func(t *testing.T, c *cluster) {
			c.p26(`"assignmentMode":"Manual"`)
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
			wantText(t, err, "no configured Calico pools for node worker-b")
			if _, err := requestPool(c, "10.77.0.0/24"); err != nil {
				t.Error(err)
			}
		}},
		{"IPAM/40 requested part of a pool", func(t *testing.T, c *cluster) {
			c.p26()
			_, err := requestPool(c, "10.77.0.0/25")
			wantText(t, err, "the given pool (10.77.0.0/25) does not exist, or is not enabled")
		}},
		{"IPAM/41 pool for tunnels", func(t *testing.T, c *cluster) {
			c.p26(`"allowedUses":["Tunnel"]`)
			const want = "cannot find a qualified ippool, no pools match the required use (Workload)"
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
			wantText(t, err, want)
			_, err = requestPool(c, "10.77.0.0/24")
			wantText(t, err, want)
		}},
		{"IPAM/42 requested address in a pool for tunnels", func(t *testing.T, c *cluster) {
			c.p26(`"allowedUses":["Tunnel"]`)
			_, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.9"))
			wantText(t, err, `IP address 10.77.0.9 is in IP pool "pods", which is not allowed for use "Workload" (allowedUses: [Tunnel])`)
		}},
		{"IPAM/43 requested address outside the pools", func(t *testing.T, c *cluster) {
			c.p26()
			c.pool("off", "10.79.0.0/24", 26, `"disabled":true`)
			for _, addr := range []string{"10.78.0.1", "10.79.0.1"} {
				_, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", addr))
				wantText(t, err, "The provided IP address is not in a configured pool")
				wantCode(t, err, cnierr.AddressOutsidePools)
			}
		}},
		{"IPAM/44 requested address in another host's block", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-a", "other", 1)
			c.config(strictConfig)
			_, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.200"))
			wantText(t, err, "Block host affinity does not match")
			c.config(`{"auto_allocate_blocks":true}`)
			if _, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.200")); err != nil {
				t.Error(err)
			}
			if c.block("10.77.0.192/26").Affinity != "host:worker-a" {
				t.Error("the owner changed")
			}
		}},
		{"IPAM/45 namespace selector", func(t *testing.T, c *cluster) {
			c.p26(`"namespaceSelector":"team == \"x\""`)
			_, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "one", 1))
			wantText(t, err, "no configured Calico pools for node worker-b", "does not select the namespace")
			r := c.request("worker-b", "one", 1)
			r.NamespaceLabels = map[string]string{"team": "x"}
			if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
				t.Error(err)
			}
		}},
		{"IPAM/48 dual stack, IPv6 exhausted", func(t *testing.T, c *cluster) {
			c.p26()
			c.pool("pods-v6", "fd00::1/128", 128)
			both := c.request("worker-b", "one", 1)
			both.Count6 = 1
			result, err := c.ipam.Assign(c.ctx(), both)
			if err != nil {
				t.Fatal(err)
			}
			c.want(result.IPv4.Addresses, "10.77.0.0/26")
			c.want(result.IPv6.Addresses, "fd00::1/128")
			before := c.store.Dump()
			both.HandleID = "k8s-pod-network.two"
			result, err = c.ipam.Assign(c.ctx(), both)
			wantText(t, err, "failed to request IPv6 addresses: Assigned 0 out of 1 requested IPv6 addresses; No IPs available in pools: [fd00::1/128]")
			wantCode(t, err, cnierr.AddressesExhausted)
			if len(result.IPv4.Addresses)+len(result.IPv6.Addresses) != 0 || c.store.Dump() != before {
				t.Error("an address was kept")
			}
		}},
	})
}
