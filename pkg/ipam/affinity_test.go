package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

func TestReleaseAffinities(t *testing.T) {
	t.Parallel()
	pool := netip.MustParsePrefix("10.77.0.0/24")
	runScenarios(t, []scenario{
		{"must be empty", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			err := c.ipam.ReleaseAffinity(c.ctx(), pool, "worker-b", true)
			if !errors.Is(err, ErrBlockNotEmpty) {
				t.Error(err)
			}
			c.wantConfirmed("worker-b", "10.77.0.0/26")
			if err := c.ipam.ReleaseAffinity(c.ctx(), pool, "worker-b", false); err != nil {
				t.Error(err)
			}
			block := c.block("10.77.0.0/26")
			if block == nil || block.Affinity != "" || !block.ClaimTime.IsZero() {
				t.Errorf("block %+v", block)
			}
			c.release("one")
			if c.block("10.77.0.0/26") != nil {
				t.Error("the ownerless block survived its last release")
			}
		}},
		{"an empty block is deleted", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "one", 1)
			c.release("one")
			if err := c.ipam.ReleaseBlockAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/26"), true); err != nil {
				t.Error(err)
			}
			if c.count("/calico/ipam/") != 0 {
				t.Error("something is left")
			}
			if err := c.ipam.ReleaseBlockAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/26"), true); err != nil {
				t.Error(err)
			}
		}},
		{"another owner's block", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-a", "one", 1)
			c.plantAffinity("worker-b", "10.77.0.192/26", `{"state":"confirmed"}`)
			if err := c.ipam.RemoveHost(c.ctx(), "worker-b"); err != nil {
				t.Error(err)
			}
			if c.affinity("worker-b", "10.77.0.192/26") != nil || c.block("10.77.0.192/26").Affinity != "host:worker-a" {
				t.Error("wrong affinity released")
			}
		}},
		{"a whole pool", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-a", "one", 1)
			c.assign("worker-b", "two", 1)
			if err := c.ipam.ReleasePoolAffinities(c.ctx(), pool); err != nil {
				t.Error(err)
			}
			if c.count("/calico/ipam/v2/host/") != 0 {
				t.Error("affinities are left")
			}
		}},
		{"claim", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-a", "one", 1)
			claimed, failed, err := c.ipam.ClaimAffinity(c.ctx(), pool, "worker-b")
			if err != nil || len(claimed) != 3 || len(failed) != 1 || failed[0].String() != "10.77.0.192/26" {
				t.Errorf("claimed %v, failed %v, %v", claimed, failed, err)
			}
			c.wantConfirmed("worker-b", "10.77.0.0/26")
			again, _, err := c.ipam.ClaimAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/26"), "worker-b")
			if err != nil || len(again) != 1 {
				t.Errorf("again %v, %v", again, err)
			}
		}},
		{"ensure", func(t *testing.T, c *cluster) {
			c.p26()
			c.pool("pods-v6", "fd00:77:1::/112", 122)
			for range 2 {
				blocks, err := c.ipam.EnsureBlock(c.ctx(), "worker-b", WindowsReservation(), WindowsReservation())
				if err != nil || len(blocks) != 2 || blocks[0].String() != "10.77.0.0/26" {
					t.Errorf("%v, %v", blocks, err)
				}
			}
			if got := c.count("/calico/ipam/v2/assignment/"); got != 2 {
				t.Errorf("%d blocks", got)
			}
		}},
		{"nothing to ensure a block from", func(t *testing.T, c *cluster) {
			c.p26()
			for range 4 {
				c.fullBlockIn("10.77.0.0/24", "worker-a")
			}
			_, err := c.ipam.EnsureBlock(c.ctx(), "worker-b", WindowsReservation(), nil)
			wantCode(t, err, cnierr.AddressesExhausted)
		}},
	})
}

func TestAffinityMistakes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	for _, cidr := range []string{"10.78.0.0/24", "10.77.0.0/27"} {
		if err := c.ipam.ReleaseAffinity(c.ctx(), netip.MustParsePrefix(cidr), "worker-b", false); err == nil {
			t.Errorf("%s: no error", cidr)
		}
	}
	if err := c.ipam.ReleaseAffinity(c.ctx(), netip.MustParsePrefix("10.77.0.0/24"), "", false); err == nil {
		t.Error("no host, no error")
	}
	if err := c.ipam.RemoveHost(c.ctx(), ""); err == nil {
		t.Error("no host, no error")
	}
}

func TestSetConfig(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*model.IPAMConfig)
		want   string // empty: an error
	}{
		{"nothing", func(*model.IPAMConfig) {}, `{"auto_allocate_blocks":true,"new":1}`},
		{"strict with a limit", func(c *model.IPAMConfig) { c.StrictAffinity, c.MaxBlocksPerHost = true, 4 },
			`{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":4,"new":1}`},
		{"a limit alone", func(c *model.IPAMConfig) { c.MaxBlocksPerHost = 4 }, ""},
		{"neither", func(c *model.IPAMConfig) { c.AutoAllocateBlocks = false }, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, memory.Options{})
			c.config(`{"auto_allocate_blocks":true,"new":1}`)
			err := c.ipam.SetConfig(c.ctx(), test.change)
			if (err != nil) != (test.want == "") {
				t.Error(err)
			}
			if raw, _ := c.store.Raw(model.IPAMConfigKey{}.Path()); test.want != "" && raw != test.want {
				t.Errorf("%s, want %s", raw, test.want)
			}
		})
	}
}

// TestRemoveHostMarker: the marker that old releases wrote goes with the host,
// and only that host's (IPAM contract 6, RemoveIPAMHost).
func TestRemoveHostMarker(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.p26()
	c.assign("worker-b", "one", 1)
	const root = "/calico/ipam/v2/host/"
	c.store.Plant(root+"worker-b", "")
	c.store.Plant(root+"worker-bb", "")
	for range 2 {
		if err := c.ipam.RemoveHost(c.ctx(), "worker-b"); err != nil {
			t.Fatal(err)
		}
		if got := c.count(root + "worker-b"); got != 1 {
			t.Errorf("%d keys under %sworker-b, want the one of worker-bb", got, root)
		}
	}
}

// TestReleasePoolDuringClaim: a claim made while the pool's affinities are
// released is released too.
func TestReleasePoolDuringClaim(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.assign("worker-a", "one", 1)
		c.plantAffinity("a-stale-one", "10.77.0.192/26", `{"state":"pending"}`)
		claimed := false
		c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() && !claimed {
				claimed = true
				c.competitor().assign("worker-c", "two", 1)
			}
			return nil
		}})
		if err := c.ipam.ReleasePoolAffinities(c.ctx(), netip.MustParsePrefix("10.77.0.0/24")); err != nil {
			t.Fatal(err)
		}
		if got := c.count("/calico/ipam/v2/host/"); got != 0 {
			t.Errorf("%d affinities are left", got)
		}
	})
}
