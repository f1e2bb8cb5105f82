package ipam

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// clock is a clock that stands still unless it is told to move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// cluster is a datastore with what IPAM needs, and an allocator on it.
type cluster struct {
	*testing.T
	store *memory.Store
	clock *clock
	ipam  *Allocator
}

func newCluster(t *testing.T, options memory.Options) *cluster {
	t.Helper()
	c := &cluster{T: t, store: memory.New(options), clock: newClock()}
	c.ipam = New(c.store, Options{Now: c.clock.Now})
	for _, host := range []string{"worker-a", "worker-b", "worker-c"} {
		c.node(host, nil)
	}
	return c
}

// forBothKinds runs a scenario on an engine with transactions and on one
// without, and checks the invariants after it.
func forBothKinds(t *testing.T, scenario func(t *testing.T, c *cluster)) {
	t.Helper()
	for name, options := range map[string]memory.Options{
		"transactional": {}, "sequential": {NonTransactional: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, options)
			scenario(t, c)
			verifyConsistent(t, c.store)
		})
	}
}

func (c *cluster) ctx() context.Context {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	c.Cleanup(cancel)
	return ctx
}

func (c *cluster) plant(key model.Key, value string) {
	c.store.Plant(key.Path(), value)
}

func (c *cluster) node(name string, labels map[string]string) {
	c.Helper()
	c.put(model.ResourceKey{Kind: model.KindNode, Name: name}, &model.Node{Metadata: model.Metadata{Name: name, Labels: labels}})
}

func (c *cluster) put(key model.Key, value any) {
	c.Helper()
	body, err := model.Encode(key, value)
	if err != nil {
		c.Fatal(err)
	}
	c.plant(key, string(body))
}

// pool declares a pool; spec is merged over its defaults.
func (c *cluster) pool(name, cidr string, blockSize int, spec ...string) {
	c.Helper()
	extra := ""
	if len(spec) > 0 {
		extra = "," + spec[0]
	}
	c.plant(model.ResourceKey{Kind: model.KindIPPool, Name: name}, fmt.Sprintf(
		`{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":%q},"spec":{"cidr":%q,"blockSize":%d%s}}`, name, cidr, blockSize, extra))
}

// p26 is the pool of the conformance table.
func (c *cluster) p26(spec ...string) { c.Helper(); c.pool("pods", "10.77.0.0/24", 26, spec...) }

func (c *cluster) config(document string) { c.plant(model.IPAMConfigKey{}, document) }

func (c *cluster) reserve(cidrs ...string) {
	c.Helper()
	c.put(model.ResourceKey{Kind: model.KindIPReservation, Name: "gw"}, &model.IPReservation{Metadata: model.Metadata{Name: "gw"}, CIDRs: cidrs})
}

// request asks for count IPv4 addresses for a container of a host.
func (c *cluster) request(host, container string, count int) Request {
	return Request{
		Host: host, HandleID: "k8s-pod-network." + container, Count4: count, Use: model.UseWorkload,
		Attributes: map[string]string{"node": host, "timestamp": FormatTimestamp(c.clock.Now())},
	}
}

// assign must succeed and returns the IPv4 addresses.
func (c *cluster) assign(host, container string, count int) []netip.Prefix {
	c.Helper()
	result, err := c.ipam.Assign(c.ctx(), c.request(host, container, count))
	if err != nil {
		c.Fatalf("assigning %d to %s on %s: %v", count, container, host, err)
	}
	return result.IPv4.Addresses
}

func (c *cluster) release(container string) {
	c.Helper()
	if err := c.ipam.ReleaseByHandle(c.ctx(), "k8s-pod-network."+container); err != nil {
		c.Fatalf("releasing %s: %v", container, err)
	}
}

func read[T any](c *cluster, key model.Key) *T {
	c.Helper()
	answers, err := c.store.Competitor().Read(c.ctx(), datastore.Get{Key: key})
	if err != nil {
		c.Fatal(err)
	}
	value, _ := datastore.One[T](answers[0])
	return value
}

func (c *cluster) block(cidr string) *model.Block {
	c.Helper()
	return read[model.Block](c, model.BlockKey{CIDR: netip.MustParsePrefix(cidr)})
}

func (c *cluster) handle(container string) *model.Handle {
	c.Helper()
	return read[model.Handle](c, model.HandleKey{ID: "k8s-pod-network." + container})
}

func (c *cluster) affinity(host, cidr string) *model.Affinity {
	c.Helper()
	return read[model.Affinity](c, model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: netip.MustParsePrefix(cidr)})
}

// want compares the addresses with their texts.
func (c *cluster) want(got []netip.Prefix, want ...string) {
	c.Helper()
	var texts []string
	for _, cidr := range got {
		texts = append(texts, cidr.String())
	}
	if !slices.Equal(texts, want) {
		c.Fatalf("addresses %v, want %v", texts, want)
	}
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("error %q lacks %q", err, part)
		}
	}
}

// auditor checks invariants. It remembers the documents it has decoded, since
// explored schedules pass through the same ones again and again.
type auditor struct{ blocks map[string]*model.Block }

func newAuditor() *auditor { return &auditor{blocks: map[string]*model.Block{}} }

func (a *auditor) block(raw string) (*model.Block, error) {
	if block, known := a.blocks[raw]; known {
		return block, nil
	}
	block := &model.Block{}
	err := json.Unmarshal([]byte(raw), block)
	if err == nil {
		a.blocks[raw] = block
	}
	return block, err
}

// verifyConsistent checks the invariants of blocks (datastore contract 4.2)
// and that handles and blocks agree: each allocation is counted by its handle,
// exactly.
func verifyConsistent(t *testing.T, store *memory.Store) {
	t.Helper()
	newAuditor().consistent(t, store)
}

func (a *auditor) consistent(t *testing.T, store *memory.Store) {
	t.Helper()
	held := map[string]map[netip.Prefix]int{}
	counted := map[string]map[netip.Prefix]int{}
	for _, path := range store.Paths() {
		key, ok := model.ParsePath(path)
		if !ok {
			continue
		}
		raw, _ := store.Raw(path)
		switch key := key.(type) {
		case model.BlockKey:
			a.whole(t, key, raw, held)
		case model.HandleKey:
			var handle model.Handle
			if err := json.Unmarshal([]byte(raw), &handle); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			counted[key.ID] = handle.Blocks
		case model.AffinityKey:
			a.claimed(t, key, raw, store)
		}
	}
	for id, blocks := range held {
		for cidr, count := range blocks {
			if counted[id][cidr] != count {
				t.Errorf("handle %s counts %d in %s, which holds %d", id, counted[id][cidr], cidr, count)
			}
		}
	}
	for id, blocks := range counted {
		for cidr, count := range blocks {
			if held[id][cidr] == 0 {
				t.Errorf("handle %s counts %d in %s, which holds none", id, count, cidr)
			}
		}
	}
}

// whole checks one block, and counts what it holds.
func (a *auditor) whole(t *testing.T, key model.BlockKey, raw string, held map[string]map[netip.Prefix]int) {
	t.Helper()
	block, err := a.block(raw)
	if err != nil {
		t.Errorf("%s: %v", key, err)
		return
	}
	used := make([]bool, len(block.Attributes))
	allocated := 0
	for ordinal, index := range block.Allocations {
		if index == model.Free {
			continue
		}
		allocated++
		used[index] = true
		holder := block.HolderOf(ordinal)
		if holder.HandleID != "" && holder.HandleID != model.ReserveHandleID {
			if held[holder.HandleID] == nil {
				held[holder.HandleID] = map[netip.Prefix]int{}
			}
			held[holder.HandleID][key.CIDR]++
		}
	}
	if allocated+len(block.Unallocated) != block.Size() {
		t.Errorf("%s: %d allocated and %d free of %d", key, allocated, len(block.Unallocated), block.Size())
	}
	if at := slices.Index(used, false); at >= 0 {
		t.Errorf("%s: nobody refers to attribute %d", key, at)
	}
	if block.Affinity == "" && !block.ClaimTime.IsZero() {
		t.Errorf("%s: claimed at %v, but by nobody", key, block.ClaimTime)
	}
}

// claimed checks that a confirmed affinity has its block.
func (a *auditor) claimed(t *testing.T, key model.AffinityKey, raw string, store *memory.Store) {
	t.Helper()
	if !strings.Contains(raw, `"confirmed"`) {
		return
	}
	text, ok := store.Raw(model.BlockKey{CIDR: key.CIDR}.Path())
	if !ok {
		t.Errorf("%s is confirmed, but the block does not exist", key)
	} else if block, err := a.block(text); err == nil && block.Affinity != key.Owner() {
		t.Errorf("%s is confirmed, but the block belongs to %q", key, block.Affinity)
	}
}
