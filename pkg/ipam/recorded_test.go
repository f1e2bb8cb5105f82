package ipam

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// load replaces the cluster's data by what an existing implementation wrote
// (testdata, one key per line).
func (c *cluster) load(name string) {
	c.Helper()
	file, err := os.Open("testdata/" + name + ".jsonl")
	if err != nil {
		c.Fatal(err)
	}
	defer file.Close()
	if err := c.store.Load(file); err != nil {
		c.Fatal(err)
	}
	c.clock.now = time.Date(2026, 11, 30, 13, 0, 0, 5, time.UTC)
}

// TestRecordedCluster goes on where an existing implementation stopped, and
// releases what that assigned.
func TestRecordedCluster(t *testing.T) {
	t.Parallel()
	const first = "k8s-pod-network.3f9c0b7d5a1e4c2f8a6b9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c"
	const dual = "k8s-pod-network.b81f2d66aaf35e12c1c2d3e4f506172839405b6c7d8e9f0a1122334455667788"
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.load("two-hosts")
		sequence := c.block("10.77.0.0/26").SequenceNumber
		c.want(c.assign("worker-b", "new", 1), "10.77.0.3/26")
		block := c.block("10.77.0.0/26")
		if block.SequenceForAllocation[3] != sequence || block.SequenceNumber != sequence+1 {
			t.Errorf("sequence numbers %d and %d after %d", block.SequenceForAllocation[3], block.SequenceNumber, sequence)
		}
		if err := c.ipam.ReleaseByHandle(c.ctx(), first, dual); err != nil {
			t.Fatal(err)
		}
		c.wantGone(first)
		c.wantGone(dual)
		r := c.request("worker-c", "dual", 1)
		r.Count6 = 1
		result, err := c.ipam.Assign(c.ctx(), r)
		if err != nil {
			t.Fatal(err)
		}
		c.want(result.IPv4.Addresses, "10.77.0.65/26")
		c.want(result.IPv6.Addresses, "fd00:77:1::8241/122")
	})
}

// TestRecordedForm: what we write has the very members, in the same order, as
// what an existing implementation wrote for the same requests.
func TestRecordedForm(t *testing.T) {
	t.Parallel()
	theirs, ours := newCluster(t, memory.Options{}), newCluster(t, memory.Options{})
	theirs.load("two-hosts")
	ours.p26()
	ours.assign("worker-b", "x", 1)
	for _, path := range []string{
		model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}.Path(),
		theirs.affinityPath("worker-b", "10.77.0.0/26"),
	} {
		want, _ := theirs.store.Raw(path)
		got, _ := ours.store.Raw(path)
		if members(t, want) != members(t, got) {
			t.Errorf("%s has members %s, want %s", path, members(t, got), members(t, want))
		}
	}
}

// members lists the names of an object's members in their order.
func members(t *testing.T, document string) string {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(document))
	var names []string
	if _, err := decoder.Token(); err != nil {
		t.Fatal(err)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name.(string))
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(names, " ")
}

// TestRecordedCooldown: a cooldown set by an operator is kept by ours where
// old writers free the address at once.
func TestRecordedCooldown(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.load("requested")
		if err := c.ipam.ReleaseByHandle(c.ctx(), "k8s-pod-network.c92f3e77bbf46f23d2d3e4f50617283940516c7d8e9f0a1b22334455667788cc"); err != nil {
			t.Fatal(err)
		}
		block := c.block("10.77.0.192/26")
		if holder := block.HolderOf(8); holder == nil || holder.ReleasedAt.IsZero() || holder.HandleID != "" {
			t.Errorf("ordinal 8 is held by %+v", holder)
		}
	})
}

// TestForeignDocuments: members and forms that ours does not know survive.
func TestForeignDocuments(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.pool("pods", "10.77.0.0/30", 30)
		c.plant(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/30")}, `{"cidr":"10.77.0.0/30","affinity":"host:worker-b",
			"strictAffinity":false,"hostAffinity":"x","future":[1],"allocations":[0,1,null,null],"unallocated":[2,3],
			"attributes":[{"handle_id":"k8s-pod-network.old\rjunk","secondary":{},"colour":"blue"},{}],"deleted":false}`)
		c.plant(model.HandleKey{ID: "k8s-pod-network.old"}, `{"block":{"10.77.0.0/30":1},"later":true}`)
		c.plantAffinity("worker-b", "10.77.0.0/30", "")
		c.want(c.assign("worker-b", "one", 1), "10.77.0.2/30")
		raw, _ := c.store.Raw(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/30")}.Path())
		for _, part := range []string{`"future":[1]`, `"hostAffinity":"x"`, `"colour":"blue"`, `"sequenceNumber":1`, `{"2":0}`} {
			wantContains(t, raw, part)
		}
		c.release("old")
		if c.handle("old") != nil || c.block("10.77.0.0/30").Allocations[0] != model.Free {
			t.Error("the old handle's address is left")
		}
		c.store.Uproot(model.HandleKey{ID: "k8s-pod-network.old"}.Path())
	})
}
