package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

const coolingConfig = `{"auto_allocate_blocks":true,"ipCooldownSeconds":600}`

// TestAffinityReleaseAndCooldown: an address that cools down makes its block
// non-empty for whoever gives the block up, and goes on cooling (IPAM contract
// 1, 2.2).
func TestAffinityReleaseAndCooldown(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]func(c *cluster) error{
		"host": func(c *cluster) error { return c.ipam.RemoveHost(c.ctx(), "worker-b") },
		"cidr": func(c *cluster) error {
			return c.ipam.ReleaseAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/24"), "worker-b", false)
		},
		"pool": func(c *cluster) error {
			return c.ipam.ReleasePoolAffinities(c.ctx(), netip.MustParsePrefix("10.77.0.0/24"))
		},
		"block": func(c *cluster) error {
			err := c.ipam.ReleaseBlockAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/26"), true)
			if !errors.Is(err, ErrBlockNotEmpty) {
				return fmt.Errorf("a block with a cooling address counts as empty: %w", err)
			}
			return c.ipam.ReleaseBlockAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/26"), false)
		},
	} {
		t.Run("IPAM/33 "+name, func(t *testing.T) {
			t.Parallel()
			forBothKinds(t, func(t *testing.T, c *cluster) {
				c.p26()
				c.config(coolingConfig)
				c.assign("worker-b", "one", 1)
				c.release("one")
				if err := release(c); err != nil {
					t.Fatal(err)
				}
				block := c.block("10.77.0.0/26")
				if block == nil || block.Affinity != "" || block.HolderOf(0) == nil {
					t.Fatalf("block %+v, want one without owner whose first address cools down", block)
				}
			})
		})
	}
}

// TestClaimAndCooldown: confirming a claim rewrites the block, in which a
// released address goes on cooling.
func TestClaimAndCooldown(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.config(coolingConfig)
		c.assign("worker-b", "one", 1)
		c.release("one")
		c.plantAffinity("worker-b", "10.77.0.0/26", `{"state":"pending"}`)
		if _, _, err := c.ipam.ClaimAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/26"), "worker-b"); err != nil {
			t.Fatal(err)
		}
		c.wantConfirmed("worker-b", "10.77.0.0/26")
		if c.block("10.77.0.0/26").HolderOf(0) == nil {
			t.Error("the address has not cooled down")
		}
	})
}
