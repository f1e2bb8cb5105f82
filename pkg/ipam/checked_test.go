package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// memo remembers checked pools.
type memo map[CheckedPool]bool

func (m memo) Load() map[CheckedPool]bool { return maps.Clone(m) }

func (m memo) Replace(pools map[CheckedPool]bool) {
	clear(m)
	maps.Copy(m, pools)
}

// poolWithUID declares a pool as Kubernetes has it, without the finalizer.
func (c *cluster) poolWithUID(name, cidr, uid string) {
	c.plant(model.ResourceKey{Kind: model.KindIPPool, Name: name}, fmt.Sprintf(
		`{"metadata":{"name":%q,"uid":%q},"spec":{"cidr":%q,"blockSize":26}}`, name, uid, cidr))
}

// lists counts how often all keys were listed since calls were forgotten.
func (c *cluster) lists() int {
	count := 0
	for _, call := range c.store.Calls() {
		for _, query := range call.Queries {
			if query == allKeys(model.IPv4) {
				count++
			}
		}
	}
	return count
}

func (c *cluster) blocksOf(host string) []netip.Prefix {
	c.Helper()
	answers, err := c.store.Read(c.ctx(), ownAffinities(host, model.IPv4))
	if err != nil {
		c.Fatal(err)
	}
	var cidrs []netip.Prefix
	for _, entry := range answers[0].Entries {
		cidrs = append(cidrs, entry.Key.(model.AffinityKey).CIDR)
	}
	return cidrs
}

// claims gives a host a new block and demands how many lists that needs.
func (c *cluster) claims(what, host string, lists int) {
	c.Helper()
	c.store.ForgetCalls()
	c.assign(host, host+what, 64)
	if got := c.lists(); got != lists {
		c.Errorf("%s: %d lists of all blocks, want %d", what, got, lists)
	}
}

// checking is a cluster on an engine that can only list all, with a memory.
func checking(t *testing.T, options memory.Options) (*cluster, memo) {
	c, m := newCluster(t, options), memo{}
	c.ipam = New(c.store, Options{Now: c.clock.Now, Checked: m})
	return c, m
}

func TestPoolsAreCheckedOnce(t *testing.T) {
	t.Parallel()
	c, m := checking(t, memory.Options{NonTransactional: true})
	c.poolWithUID("pods", "10.77.0.0/20", "u1")
	c.claims("the first claim", "worker-b", 1)
	c.claims("the second", "worker-b", 0)
	if want := (memo{{"u1", 26}: true}); !maps.Equal(m, want) {
		t.Errorf("remembered %v", m)
	}
	c.poolWithUID("pods", "10.77.0.0/20", "u2")
	c.claims("a new pool of the same name", "worker-b", 1)
	if want := (memo{{"u2", 26}: true}); !maps.Equal(m, want) {
		t.Errorf("remembered %v: a pool that is gone stays remembered", m)
	}
	c.poolWithUID("other", "10.78.0.0/20", "u3")
	if _, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-a", "address", "10.78.1.1")); err != nil {
		t.Fatal(err)
	}
	if want := (memo{{"u2", 26}: true, {"u3", 26}: true}); !maps.Equal(m, want) {
		t.Errorf("after an address was requested remembered are %v", m)
	}
	c.store.ForgetCalls()
	if _, err := c.ipam.AssignAddress(c.ctx(), c.address("worker-a", "another", "10.78.2.1")); err != nil || c.lists() != 0 {
		t.Errorf("%d lists, %v", c.lists(), err)
	}
	verifyConsistent(t, c.store)
}

// TestLeftoversAreNotNoted: as long as blocks of another size are in the pool,
// each claim looks where they are.
func TestLeftoversAreNotNoted(t *testing.T) {
	t.Parallel()
	for name, leftover := range map[string]string{"smaller": "10.77.3.16/28", "larger": "10.77.3.0/24", "round the pool": "10.77.0.0/18"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, m := checking(t, memory.Options{NonTransactional: true})
			c.poolWithUID("pods", "10.77.0.0/20", "u1")
			c.poolWithUID("spare", "10.79.0.0/20", "u2")
			cidr := netip.MustParsePrefix(leftover)
			c.put(model.BlockKey{CIDR: cidr}, model.NewBlock(cidr, "host:worker-a", c.clock.Now(), nil))
			c.claims("the first claim", "worker-b", 1)
			c.claims("the second", "worker-b", 1)
			if m[CheckedPool{"u1", 26}] {
				t.Errorf("remembered %v", m)
			}
			for _, cidr := range c.blocksOf("worker-b") {
				if cidr.Overlaps(netip.MustParsePrefix(leftover)) {
					t.Errorf("claimed %s, which overlaps %s", cidr, leftover)
				}
			}
			c.store.Uproot(model.BlockKey{CIDR: cidr}.Path())
			c.claims("when they are gone", "worker-a", 1)
			c.claims("and after that", "worker-a", 0)
		})
	}
}

// TestUnclaimedAffinityIsChecked: that an earlier call got as far as the
// affinity says nothing of what else is there.
func TestUnclaimedAffinityIsChecked(t *testing.T) {
	t.Parallel()
	c, _ := checking(t, memory.Options{NonTransactional: true})
	c.poolWithUID("pods", "10.77.0.0/20", "u1")
	leftover := netip.MustParsePrefix("10.77.3.16/28")
	c.put(model.BlockKey{CIDR: leftover}, model.NewBlock(leftover, "host:worker-a", c.clock.Now(), nil))
	c.plantAffinity("worker-b", "10.77.3.0/26", `{"state":"pending","deleted":false}`)
	c.plantAffinity("worker-b", "10.77.4.0/26", `{"state":"pending","deleted":false}`)
	c.want(c.assign("worker-b", "one", 1), "10.77.4.0/26")
	if c.affinity("worker-b", "10.77.3.0/26") != nil {
		t.Error("the affinity that cannot get a block is left")
	}
	verifyConsistent(t, c.store)
}

// TestNothingIsRemembered where it would be of no use.
func TestNothingIsRemembered(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options memory.Options
		uid     string
	}{
		"with transactions": {memory.Options{}, "u1"},
		"a pool without id": {memory.Options{NonTransactional: true}, ""},
	} {
		c, m := checking(t, test.options)
		c.poolWithUID("pods", "10.77.0.0/24", test.uid)
		c.claims("a claim", "worker-b", map[bool]int{true: 1}[test.options.NonTransactional])
		c.claims("another", "worker-b", map[bool]int{true: 1}[test.options.NonTransactional])
		if len(m) != 0 {
			t.Errorf("%s: remembered %v", name, m)
		}
	}
}
