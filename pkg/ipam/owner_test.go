package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// podOwner is the owner map of a pod.
func podOwner(pod string) map[string]string {
	return map[string]string{"node": "worker-b", "namespace": "shop", "pod": pod}
}

// assignBoth gives a container an address of each family.
func (c *cluster) assignBoth(host, container string) {
	c.Helper()
	r := c.request(host, container, 1)
	r.Count6 = 1
	if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
		c.Fatal(err)
	}
}

// held are the addresses of a handle, with their owners.
func (c *cluster) held(container string) []Allocation {
	c.Helper()
	held, err := New(c.store.Competitor(), Options{}).AllocationsByHandle(c.ctx(), "k8s-pod-network."+container)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		c.Fatal(err)
	}
	return held
}

// ofAll makes a pod an owner of all addresses; without a name, nobody.
func ofAll(pod string, alternate bool) func(Holding) (OwnerChange, error) {
	return func(holding Holding) (OwnerChange, error) {
		change := OwnerChange{Alternate: alternate}
		if pod != "" {
			change.Owner = podOwner(pod)
		}
		for _, allocation := range holding.Allocations {
			change.Addresses = append(change.Addresses, allocation.Addr)
		}
		return change, nil
	}
}

const handleOfOne = "k8s-pod-network.one"

// machine has the addresses of both families under the handle of "one", with
// these owners.
func (c *cluster) machine(active, alternate string) {
	c.Helper()
	c.assignBoth("worker-b", "one")
	for _, change := range []func(Holding) (OwnerChange, error){ofAll(active, false), ofAll(alternate, true)} {
		if err := c.ipam.ChangeOwner(c.ctx(), handleOfOne, change); err != nil {
			c.Fatal(err)
		}
	}
}

func leaving(pod string, release bool) Disowning {
	return Disowning{HandleID: "k8s-pod-network.one", Namespace: "shop", Pod: pod, Release: release}
}

// wantOwners checks the owners of both addresses of the handle of "one".
func (c *cluster) wantOwners(active, alternate string) {
	c.Helper()
	held := c.held("one")
	if len(held) != 2 {
		c.Errorf("%d addresses, want 2", len(held))
	}
	for _, allocation := range held {
		if allocation.Attributes["pod"] != active || allocation.Alternate["pod"] != alternate {
			c.Errorf("%s is owned by %v and %v, want %q and %q", allocation.Addr, allocation.Attributes, allocation.Alternate, active, alternate)
		}
	}
}

func bothPools(c *cluster) {
	c.p26()
	c.pool("pods-v6", "fd00:77:1::/112", 122)
}

func TestChangeOwner(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		bothPools(c)
		c.machine("launcher-a", "")
		c.wantOwners("launcher-a", "")
		before := c.block("10.77.0.0/26")
		if err := c.ipam.ChangeOwner(c.ctx(), handleOfOne, ofAll("launcher-b", true)); err != nil {
			t.Fatal(err)
		}
		c.wantOwners("launcher-a", "launcher-b")
		after := c.block("10.77.0.0/26")
		if after.SequenceNumber != before.SequenceNumber+1 || after.SequenceForAllocation[0] != before.SequenceForAllocation[0] {
			t.Errorf("sequence numbers %d %v, then %d %v", before.SequenceNumber, before.SequenceForAllocation, after.SequenceNumber, after.SequenceForAllocation)
		}
		writes := c.store.Writes()
		if err := c.ipam.ChangeOwner(c.ctx(), handleOfOne, ofAll("launcher-b", true)); err != nil || c.store.Writes() != writes {
			t.Errorf("the same again: %v, %d writes", err, c.store.Writes()-writes)
		}
		refusal := errors.New("refused")
		for _, id := range []string{handleOfOne, "k8s-pod-network.none"} {
			err := c.ipam.ChangeOwner(c.ctx(), id, func(holding Holding) (OwnerChange, error) {
				if (len(holding.Allocations) == 2) != (id == handleOfOne) {
					t.Errorf("%s holds %+v", id, holding)
				}
				return OwnerChange{}, refusal
			})
			if !errors.Is(err, refusal) || c.store.Writes() != writes {
				t.Errorf("%s: %v, %d writes", id, err, c.store.Writes()-writes)
			}
		}
	})
}

// TestChangeOwnerAgain: who is overtaken by another writer looks again.
func TestChangeOwnerAgain(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.assign("worker-b", "one", 1)
		c.beforeFirstWrite(func() { c.competitor().release("one") })
		var seen []int
		err := c.ipam.ChangeOwner(c.ctx(), handleOfOne, func(holding Holding) (OwnerChange, error) {
			seen = append(seen, len(holding.Allocations))
			return ofAll("launcher-a", false)(holding)
		})
		if err != nil || len(seen) != 2 || seen[0] != 1 || seen[1] != 0 {
			t.Errorf("%v, saw %v addresses", err, seen)
		}
	})
}

// TestOwnerOfOneAddress: addresses that were assigned together share an
// attribute, and get one each when they differ.
func TestOwnerOfOneAddress(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.assign("worker-b", "one", 3)
		err := c.ipam.ChangeOwner(c.ctx(), handleOfOne, func(holding Holding) (OwnerChange, error) {
			change, err := ofAll("launcher-a", false)(holding)
			change.Addresses = change.Addresses[1:2]
			return change, err
		})
		if err != nil {
			t.Fatal(err)
		}
		block := c.block("10.77.0.0/26")
		if len(block.Attributes) != 2 || block.HolderOf(1).Owner["pod"] != "launcher-a" || block.HolderOf(0).Owner["pod"] != "" || block.HolderOf(2).Owner["pod"] != "" {
			t.Errorf("attributes %+v of %v", block.Attributes, block.Allocations[:3])
		}
	})
}

func TestDisown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		active, alternate, pod  string
		release, released       bool
		wantActive, wantAlterna string
	}{
		"the active owner":                   {"a", "", "a", false, false, "", ""},
		"the active owner of two":            {"a", "b", "a", true, false, "", "b"},
		"the alternate owner":                {"a", "b", "b", true, false, "a", ""},
		"once by each name":                  {"a", "a", "a", true, false, "", "a"},
		"a stranger":                         {"a", "b", "c", true, false, "a", "b"},
		"a stranger, the machine has ended":  {"", "", "c", true, true, "", ""},
		"the last, the machine has ended":    {"a", "", "a", true, true, "", ""},
		"the last alternate, it has ended":   {"", "b", "b", true, true, "", ""},
		"a stranger, the machine has not":    {"", "", "c", false, false, "", ""},
		"another remains, it has ended":      {"", "b", "c", true, false, "", "b"},
		"another remains active, it has end": {"a", "", "c", true, false, "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forBothKinds(t, func(t *testing.T, c *cluster) {
				bothPools(c)
				c.machine(test.active, test.alternate)
				released, err := c.ipam.Disown(c.ctx(), leaving(test.pod, test.release))
				if err != nil || released != test.released {
					t.Fatalf("released %v, %v", released, err)
				}
				if test.released {
					c.wantGone("k8s-pod-network.one")
					return
				}
				c.wantOwners(test.wantActive, test.wantAlterna)
				if raw, _ := c.store.Raw(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}.Path()); len(c.block("10.77.0.0/26").Attributes) != 1 {
					t.Errorf("the block holds %s", raw)
				}
			})
		})
	}
	t.Run("no handle", func(t *testing.T) {
		t.Parallel()
		forBothKinds(t, func(t *testing.T, c *cluster) {
			if _, err := c.ipam.Disown(c.ctx(), leaving("a", true)); err != nil || c.store.Writes() != 0 {
				t.Errorf("%v, %d writes", err, c.store.Writes())
			}
		})
	})
}

// TestDisownedForm: what is empty is not written, and the handle's name keeps
// the block from being given away (IPAM contract 9).
func TestDisownedForm(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	bothPools(c)
	c.machine("a", "")
	if _, err := c.ipam.Disown(c.ctx(), leaving("a", false)); err != nil {
		t.Fatal(err)
	}
	block := c.block("10.77.0.0/26")
	form, err := block.Attributes[0].MarshalJSON()
	if err != nil || string(form) != `{"handle_id":"k8s-pod-network.one"}` || block.Empty() {
		t.Errorf("attribute %s, %v; empty is %v", form, err, block.Empty())
	}
}

// TestStalePassesMachines: GC takes a machine's addresses for nobody's, even if
// the network's name makes its handle look like a container's.
func TestStalePassesMachines(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		for _, network := range []string{"net", "net.vmi", "net.vmi.shop"} {
			r := c.request("worker-b", "", 1)
			r.HandleID, r.Attributes[AttributeInstance] = "net.vmi.shop.vm1", "vm1"
			if network == "net" {
				if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
					t.Fatal(err)
				}
				c.clock.advance(1)
			}
			stale, err := staleIDs(c, GCRequest{Network: network, Host: "worker-b", Before: c.clock.Now()})
			if err != nil || len(stale) != 0 {
				t.Errorf("network %s: %v, %v", network, stale, err)
			}
		}
	})
}

// own makes a pod an owner of a machine's addresses, if there are any (still).
func own(pod string, alternate bool) actor {
	return actor{
		name: "ADD of " + pod,
		run: func(_ *cluster, a *Allocator) error {
			return a.ChangeOwner(context.Background(), handleOfOne, ofAll(pod, alternate))
		},
		recover: func(c *cluster) error { return c.ipam.ChangeOwner(c.ctx(), handleOfOne, ofAll(pod, alternate)) },
	}
}

func disown(pod string, release bool) actor {
	return actor{
		name: fmt.Sprintf("DEL of %s, ended %v", pod, release),
		run: func(_ *cluster, a *Allocator) error {
			_, err := a.Disown(context.Background(), leaving(pod, release))
			return err
		},
		recover: func(c *cluster) error {
			_, err := c.ipam.Disown(c.ctx(), leaving(pod, release))
			return err
		},
	}
}

// addFirst is the ADD of a machine's first pod.
func addFirst(host string) actor {
	a := addAny(host, "one")
	a.run = func(c *cluster, allocator *Allocator) error {
		r := c.request(host, "one", 1)
		r.OncePerFamily = true
		_, err := allocator.Assign(context.Background(), r)
		return err
	}
	return a
}

func ownerInterleavings() []interleaving {
	machine := func(active, alternate string) func(*cluster) {
		return func(c *cluster) { bothPools(c); c.machine(active, alternate) }
	}
	return []interleaving{
		{name: "a machine moves while its pod is networked again", prepare: machine("a", ""), actors: []actor{own("a", false), own("b", true)},
			verify: func(c *cluster) { c.wantOwners("a", "b") }},
		{name: "both pods of a machine leave", prepare: machine("a", "b"), actors: []actor{disown("a", false), disown("b", false)},
			verify: func(c *cluster) { c.wantOwners("", "") }},
		{name: "both pods of a machine leave at its end", prepare: machine("a", "b"), actors: []actor{disown("a", true), disown("b", true)},
			verify: func(c *cluster) { c.wantGone("k8s-pod-network.one") }},
		{name: "a machine's next pod comes and its last one leaves", prepare: machine("a", ""), actors: []actor{own("b", false), disown("a", false)},
			verify: func(c *cluster) { c.wantOwners("b", "") }},
		{name: "a pod comes while the addresses are released", handleRace: true, prepare: machine("a", ""), actors: []actor{own("b", true), disown("a", true)},
			calmly: func(c *cluster) {
				if c.store.Transactional() && len(c.held("one")) > 0 {
					c.wantOwners("", "b")
				}
			}},
		{name: "two first pods of a machine", sharedHandle: true, loose: true, prepare: func(c *cluster) { c.p26() }, actors: []actor{addFirst("worker-a"), addFirst("worker-b")},
			verify: func(c *cluster) {
				if held := c.held("one"); c.store.Transactional() && len(held) > 1 {
					c.Errorf("the machine has %v", held)
				}
			}},
	}
}
