package ipam

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/model"
)

func TestConformanceWindows(t *testing.T) {
	t.Parallel()
	windows := func(c *cluster, count int) Request {
		r := c.request("worker-b", "one", count)
		r.Reserve, r.RequireStrictAffinity = WindowsReservation(), true
		return r
	}
	runScenarios(t, []scenario{
		{"IPAM/55 strict affinity off", func(t *testing.T, c *cluster) {
			c.p26()
			c.assign("worker-b", "old", 1)
			_, err := c.ipam.Assign(c.ctx(), windows(c, 1))
			wantCode(t, err, cnierr.StrictAffinityNeeded)
			wantText(t, err, "global strict affinity should not be false for Windows node")
			address := c.address("worker-b", "one", "10.77.0.9")
			address.RequireStrictAffinity = true
			_, err = c.ipam.AssignAddress(c.ctx(), address)
			wantCode(t, err, cnierr.StrictAffinityNeeded)
			c.release("old")
			c.release("unknown")
		}},
		{"IPAM/56 four addresses less per block", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			result, err := c.ipam.Assign(c.ctx(), windows(c, 256))
			if err != nil || len(result.IPv4.Addresses) != 240 {
				t.Fatalf("%d addresses, %v", len(result.IPv4.Addresses), err)
			}
			for _, got := range result.IPv4.Addresses {
				if slices.Contains([]byte{0, 1, 2, 63}, got.Addr().As4()[3]%64) {
					t.Errorf("%s is Windows'", got)
				}
			}
		}},
		{"IPAM/57 one block", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			r := windows(c, 61)
			r.MaxBlocks = 1
			result, err := c.ipam.Assign(c.ctx(), r)
			wantCode(t, err, cnierr.BlockLimit)
			if len(result.IPv4.Addresses) != 60 {
				t.Errorf("%d addresses", len(result.IPv4.Addresses))
			}
		}},
		{"IPAM/58 blocks too small", func(t *testing.T, c *cluster) {
			for _, size := range []int{30, 31, 32} {
				c.pool(fmt.Sprint("p", size), fmt.Sprintf("10.%d.0.0/24", size), size)
			}
			c.config(strictConfig)
			_, err := c.ipam.Assign(c.ctx(), windows(c, 1))
			wantText(t, err, "cannot find a qualified ippool", "too small for the reserved addresses")
			wantCode(t, err, cnierr.NoPool)
		}},
		{"IPAM/59 smallest block", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.0.0/29", 29)
			c.config(strictConfig)
			result, err := c.ipam.Assign(c.ctx(), windows(c, 5))
			if err != nil {
				t.Fatal(err)
			}
			c.want(result.IPv4.Addresses, "10.77.0.3/29", "10.77.0.4/29", "10.77.0.5/29", "10.77.0.6/29")
		}},
		{"IPAM/60 nothing is borrowed", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			c.assign("worker-a", "linux", 193)
			c.fullBlockIn("10.77.0.0/24", "worker-b")
			result, err := c.ipam.Assign(c.ctx(), windows(c, 1))
			if err != nil {
				t.Fatal(err)
			}
			if want := "Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled; HostReservedAttr: windows-reserved-ipam-handle"; result.IPv4.Short != want {
				t.Errorf("%q, want %q", result.IPv4.Short, want)
			}
			wantCode(t, result.Err(), cnierr.AddressesExhausted)
		}},
		{"IPAM/61 a Windows block is not lent", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.0.0/26", 26)
			c.config(strictConfig)
			if _, err := c.ipam.Assign(c.ctx(), windows(c, 1)); err != nil {
				t.Fatal(err)
			}
			c.wantShort("worker-a", 1, 0, "strict affinity enabled")
		}},
		{"IPAM/62 single network", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			r := windows(c, 60)
			r.MaxBlocks = 1
			if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
				t.Fatal(err)
			}
			r.Count4, r.HandleID = 1, "k8s-pod-network.two"
			_, err := c.ipam.Assign(c.ctx(), r)
			wantCode(t, err, cnierr.BlockLimit)
			address := c.address("worker-b", "three", "10.77.0.200")
			address.MaxBlocks = 1
			_, err = c.ipam.AssignAddress(c.ctx(), address)
			wantCode(t, err, cnierr.BlockLimit)
		}},
		{"IPAM/63 a block with only Windows' addresses is empty", func(t *testing.T, c *cluster) {
			c.pool("pods", "10.77.0.0/26", 26)
			c.config(strictConfig)
			if _, err := c.ipam.Assign(c.ctx(), windows(c, 1)); err != nil {
				t.Fatal(err)
			}
			c.release("one")
			c.clock.advance(2 * time.Minute)
			c.want(c.assign("worker-a", "two", 1), "10.77.0.0/26")
		}},
		{"IPAM/64 a new Windows block", func(t *testing.T, c *cluster) {
			c.p26()
			c.config(strictConfig)
			blocks, err := c.ipam.EnsureBlock(c.ctx(), "worker-b", WindowsReservation(), nil)
			if err != nil || len(blocks) != 1 {
				t.Fatalf("%v, %v", blocks, err)
			}
			raw, _ := c.store.Raw(model.BlockKey{CIDR: blocks[0]}.Path())
			wantContains(t, raw, `"attributes":[{"handle_id":"windows-reserved-ipam-handle","secondary":{"note":"windows host rsvd"}}]`)
			if c.count("/calico/ipam/v2/handle/") != 0 {
				t.Error("a handle object was created")
			}
			address := c.address("worker-b", "three", "10.77.0.1")
			_, err = c.ipam.AssignAddress(c.ctx(), address)
			wantCode(t, err, cnierr.AddressTaken)
			wantText(t, err, "Address already assigned in block")
		}},
	})
}
