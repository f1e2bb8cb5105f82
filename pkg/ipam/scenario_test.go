package ipam

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// scenario is one row of the conformance table (IPAM contract 13).
type scenario struct {
	name string
	run  func(t *testing.T, c *cluster)
}

func runScenarios(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			forBothKinds(t, s.run)
		})
	}
}

// strictConfig turns strict affinity on.
const strictConfig = `{"strict_affinity":true,"auto_allocate_blocks":true}`

func wantCode(t *testing.T, err error, code cnierr.Code) {
	t.Helper()
	if got := cnierr.CodeOf(err); err == nil || got != code {
		t.Errorf("code %d, want %d: %v", got, code, err)
	}
}

func wantContains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q lacks %q", text, part)
	}
}

func (c *cluster) wantShort(host string, count, want int, parts ...string) {
	c.Helper()
	result, err := c.ipam.Assign(c.ctx(), c.request(host, "many", count))
	if err != nil {
		c.Fatal(err)
	}
	if got := len(result.IPv4.Addresses); got != want {
		c.Errorf("%d addresses, want %d", got, want)
	}
	for _, part := range parts {
		wantContains(c.T, result.IPv4.Short, part)
	}
}

func (c *cluster) wantConfirmed(host, cidr string) {
	c.Helper()
	if affinity := c.affinity(host, cidr); affinity == nil || affinity.State != model.StateConfirmed {
		c.Errorf("affinity of %s for %s: %+v", host, cidr, affinity)
	}
}

func (c *cluster) address(host, container, addr string) AddressRequest {
	r := c.request(host, container, 0)
	return AddressRequest{Addr: netip.MustParseAddr(addr), Host: host, HandleID: r.HandleID, Attributes: r.Attributes, Use: model.UseWorkload}
}

// count is the number of keys under a path.
func (c *cluster) count(prefix string) int {
	n := 0
	for _, path := range c.store.Paths() {
		if strings.HasPrefix(path, prefix) {
			n++
		}
	}
	return n
}

func (c *cluster) affinityPath(host, cidr string) string {
	return model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: netip.MustParsePrefix(cidr)}.Path()
}

func (c *cluster) plantAffinity(host, cidr, value string) {
	c.store.Plant(c.affinityPath(host, cidr), value)
}

// fullBlock plants a block of a host in which every address is taken, without
// handle objects: an old writer's allocations.
func (c *cluster) fullBlock(host string, cidr netip.Prefix) {
	c.Helper()
	block := model.NewBlock(cidr, "host:"+host, c.clock.Now(), nil)
	block.Allocate(block.Size(), model.Attribute{Owner: map[string]string{"node": host}}, nil)
	c.put(model.BlockKey{CIDR: cidr}, block)
	c.plantAffinity(host, cidr.String(), `{"state":"confirmed","deleted":false}`)
}

// fullBlockIn gives a host the last missing block of a pool, full.
func (c *cluster) fullBlockIn(pool, host string) {
	c.Helper()
	blocks := blockRange{netip.MustParsePrefix(pool), 26}
	for i := range blocks.count().limited(1024) {
		if cidr := blocks.at(newUint128(i)); c.block(cidr.String()) == nil {
			c.fullBlock(host, cidr)
			return
		}
	}
}

// fillAllButOneEach gives all four blocks of P26 to a host, one address free
// in each.
func (c *cluster) fillAllButOneEach(host string) {
	c.Helper()
	for i := range 4 {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(64 * i)}), 26)
		block := model.NewBlock(cidr, "host:"+host, c.clock.Now(), nil)
		block.Allocate(63, model.Attribute{Owner: map[string]string{"node": host}}, nil)
		c.put(model.BlockKey{CIDR: cidr}, block)
		c.plantAffinity(host, cidr.String(), `{"state":"confirmed","deleted":false}`)
	}
}

// emptyBlockOf gives one host an empty block, 10.77.0.192/26, and the other
// three to a second one, full.
func (c *cluster) emptyBlockOf(host, other string) {
	c.Helper()
	c.assign(host, "brief", 1)
	c.release("brief")
	for range 3 {
		c.fullBlockIn("10.77.0.0/24", other)
	}
}

func writes(call memory.Call, key model.Key) bool {
	for _, step := range call.Steps {
		for _, mutation := range step {
			if mutation.Key == key && mutation.Op != datastore.Expect {
				return true
			}
		}
	}
	return false
}

// beforeWriteOf runs what a rival does, once, just before a block is written.
func (c *cluster) beforeWriteOf(cidr string, rival func()) {
	done := false
	c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if !done && writes(call, model.BlockKey{CIDR: netip.MustParsePrefix(cidr)}) {
			done = true
			rival()
		}
		return nil
	}})
}

// competitor is another process on the same data.
func (c *cluster) competitor() *cluster {
	store := c.store.Competitor()
	return &cluster{T: c.T, store: store, clock: c.clock, ipam: New(store, Options{Now: c.clock.Now})}
}

// claimFor plants what another host's claim of a block leaves.
func claimFor(c *cluster, host, cidr string, r Request) error {
	block := model.NewBlock(netip.MustParsePrefix(cidr), "host:"+host, c.clock.Now(), nil)
	block.Allocate(1, model.Attribute{HandleID: r.HandleID, Owner: r.Attributes}, nil)
	body, err := json.Marshal(block)
	if err != nil {
		return err
	}
	c.plant(model.BlockKey{CIDR: block.CIDR}, string(body))
	c.plant(model.HandleKey{ID: r.HandleID}, `{"block":{"`+cidr+`":1},"deleted":false}`)
	c.plantAffinity(host, cidr, `{"state":"confirmed","deleted":false}`)
	return nil
}
