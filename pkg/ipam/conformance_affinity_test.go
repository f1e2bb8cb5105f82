package ipam

import (
	"net/netip"
	"testing"

	"calico-cni/pkg/model"
)

func TestConformanceAffinities(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{"IPAM/15 pending affinity without block", func(t *testing.T, c *cluster) {
			c.p26()
			c.plantAffinity("worker-b", "10.77.0.128/26", `{"state":"pending","deleted":false}`)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.128/26")
			c.wantConfirmed("worker-b", "10.77.0.128/26")
		}},
		{"IPAM/15 confirmed affinity without block", func(t *testing.T, c *cluster) {
			c.p26()
			c.plantAffinity("worker-b", "10.77.0.128/26", `{"state":"confirmed","deleted":false}`)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.128/26")
			c.wantConfirmed("worker-b", "10.77.0.128/26")
		}},
		{"IPAM/16 affinity taken back from pendingDeletion", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.plantAffinity("worker-b", "10.77.0.0/26", `{"state":"pendingDeletion","deleted":false}`)
			before := c.block("10.77.0.0/26").SequenceNumber
			c.want(c.assign("worker-b", "two", 1), "10.77.0.1/26")
			c.wantConfirmed("worker-b", "10.77.0.0/26")
			if c.block("10.77.0.0/26").SequenceNumber == before {
				t.Error("the block was not rewritten")
			}
		}},
		{"IPAM/17 affinity for another host's block", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-a", "other", 1)
			c.plantAffinity("worker-b", "10.77.0.192/26", `{"state":"confirmed","deleted":false}`)
			c.want(c.assign("worker-b", "one", 1), "10.77.0.0/26")
			if c.affinity("worker-b", "10.77.0.192/26") != nil {
				t.Error("the stale affinity is still there")
			}
		}},
		{"IPAM/18 affinity with an empty value", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.plantAffinity("worker-b", "10.77.0.0/26", "")
			c.want(c.assign("worker-b", "two", 1), "10.77.0.1/26")
			if raw, _ := c.store.Raw(c.affinityPath("worker-b", "10.77.0.0/26")); raw != "" {
				t.Errorf("the affinity was rewritten: %s", raw)
			}
		}},
		{"IPAM/20 another host creates the block first", func(t *testing.T, c *cluster) {
			c.p26()
			c.beforeWriteOf("10.77.0.0/26", func() {
				r := c.request("worker-a", "rival", 1)
				err := claimFor(c, "worker-a", "10.77.0.0/26", r)
				if err != nil {
					t.Error(err)
				}
			})
			c.want(c.assign("worker-b", "one", 1), "10.77.0.64/26")
			if c.affinity("worker-b", "10.77.0.0/26") != nil {
				t.Error("worker-b kept an affinity for the block it lost")
			}
		}},
		{"IPAM/46 node no longer selected, last address released", func(t *testing.T, c *cluster) {
			c.p26(`"nodeSelector":"!has(gone)"`)
			c.assign("worker-b", "one", 1)
			c.node("worker-b", map[string]string{"gone": "yes"})
			c.release("one")
			if c.block("10.77.0.0/26") != nil || c.affinity("worker-b", "10.77.0.0/26") != nil {
				t.Error("block or affinity left")
			}
		}},
		{"IPAM/47 node no longer selected, addresses left", func(t *testing.T, c *cluster) {
			c.p26(`"nodeSelector":"!has(gone)"`)
			c.pool("spare", "10.78.0.0/24", 26)
			c.assign("worker-b", "one", 1)
			c.assign("worker-b", "two", 1)
			c.node("worker-b", map[string]string{"gone": "yes"})
			c.release("one")
			if c.block("10.77.0.0/26") == nil {
				t.Fatal("the block is gone")
			}
			c.want(c.assign("worker-b", "three", 1), "10.78.0.0/26")
			if c.block("10.77.0.0/26") == nil {
				t.Fatal("the block is gone")
			}
			c.release("two")
			if c.block("10.77.0.0/26") != nil {
				t.Error("the block is left")
			}
		}},
		{"IPAM/67 a smaller block overlaps", func(t *testing.T, c *cluster) {
			c.p26()
			c.put(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.16/28")},
				model.NewBlock(netip.MustParsePrefix("10.77.0.16/28"), "host:worker-a", c.clock.Now(), nil))
			c.want(c.assign("worker-b", "one", 1), "10.77.0.64/26")
		}},
		{"IPAM/68 a larger block overlaps", func(t *testing.T, c *cluster) {
			c.p26()
			c.put(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/25")},
				model.NewBlock(netip.MustParsePrefix("10.77.0.0/25"), "host:worker-a", c.clock.Now(), nil))
			c.want(c.assign("worker-b", "one", 1), "10.77.0.128/26")
		}},
		{"IPAM/68 a larger block that begins elsewhere", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.1.0/24", 26)
			c.pool("spare", "10.78.0.0/24", 26)
			c.put(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/22")},
				model.NewBlock(netip.MustParsePrefix("10.77.0.0/22"), "host:worker-a", c.clock.Now(), nil))
			c.want(c.assign("worker-b", "one", 1), "10.78.0.0/26")
		}},
		{"own block of another size serves no ADD and leaves when empty", func(t *testing.T, c *cluster) {
			c.p26()
			cidr := netip.MustParsePrefix("10.77.0.16/28")
			c.put(model.BlockKey{CIDR: cidr}, model.NewBlock(cidr, "host:worker-b", c.clock.Now(), nil))
			c.plantAffinity("worker-b", cidr.String(), `{"state":"confirmed","deleted":false}`)
			c.assign("worker-b", "one", 1)
			if c.block(cidr.String()) != nil || c.affinity("worker-b", cidr.String()) != nil {
				t.Error("the misfit is left")
			}
		}},
		{"a block of ours without affinity is used", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.0.0/26", 26)
			c.assign("worker-b", "one", 1)
			c.store.Uproot(c.affinityPath("worker-b", "10.77.0.0/26"))
			c.want(c.assign("worker-b", "two", 1), "10.77.0.1/26")
			c.wantConfirmed("worker-b", "10.77.0.0/26")
		}},
	})
}
