package ipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// verb is a write operation that is interrupted in the tests of faults.
type verb struct {
	name    string
	prepare func(c *cluster)
	run     func(c *cluster, a *Allocator) error
	// recover is what the runtime does next.
	recover func(c *cluster) error
	// kind says what has to hold afterwards.
	kind verbKind
}

type verbKind int

const (
	adds verbKind = iota
	releases
	disowns
)

func add(host string, count4, count6 int) func(c *cluster, a *Allocator) error {
	return func(c *cluster, a *Allocator) error {
		r := c.request(host, "one", count4)
		r.Count6 = count6
		result, err := a.Assign(c.ctx(), r)
		if err == nil {
			err = result.Err()
		}
		return err
	}
}

func del(c *cluster) error { return c.ipam.ReleaseByHandle(c.ctx(), "k8s-pod-network.one") }

func verbs() []verb {
	nothing := func(*cluster) {}
	return []verb{
		{"claim", nothing, add("worker-b", 1, 0), del, adds},
		{"dual-stack claim", nothing, add("worker-b", 1, 1), del, adds},
		{"several blocks", nothing, add("worker-b", 150, 0), del, adds},
		{"own block", func(c *cluster) { c.assign("worker-b", "other", 1) }, add("worker-b", 1, 0), del, adds},
		{"own and new block", func(c *cluster) { c.assign("worker-b", "other", 63) }, add("worker-b", 2, 0), del, adds},
		{"second ADD of a container", func(c *cluster) { c.assign("worker-b", "one", 1) }, add("worker-b", 1, 0), del, adds},
		{"affinity pending", func(c *cluster) {
			c.assign("worker-b", "other", 1)
			c.plantAffinity("worker-b", "10.77.0.0/26", `{"state":"pending"}`)
		}, add("worker-b", 1, 0), del, adds},
		{"stale affinity", func(c *cluster) {
			c.assign("worker-a", "other", 1)
			c.plantAffinity("worker-b", "10.77.0.192/26", `{"state":"pending"}`)
		}, add("worker-b", 1, 0), del, adds},
		{"borrow", func(c *cluster) { c.fillAllButOneEach("worker-a") }, add("worker-b", 2, 0), del, adds},
		{"reclaim", func(c *cluster) {
			c.emptyBlockOf("worker-a", "worker-c")
			c.clock.advance(2 * time.Minute)
		}, add("worker-b", 1, 0), del, adds},
		{"requested address", nothing, func(c *cluster, a *Allocator) error {
			_, err := a.AssignAddress(c.ctx(), c.address("worker-b", "one", "10.77.0.200"))
			return err
		}, del, adds},
		{"release by handle", func(c *cluster) {
			c.assign("worker-b", "other", 60)
			c.assign("worker-b", "one", 100)
		}, func(c *cluster, a *Allocator) error {
			return a.ReleaseByHandle(c.ctx(), "k8s-pod-network.one")
		}, del, releases},
		{"release of an ownerless block", func(c *cluster) {
			c.assign("worker-b", "one", 1)
			if err := c.ipam.RemoveHost(c.ctx(), "worker-b"); err != nil {
				c.Fatal(err)
			}
		}, func(c *cluster, a *Allocator) error {
			return a.ReleaseByHandle(c.ctx(), "k8s-pod-network.one")
		}, del, releases},
		{"release by address", func(c *cluster) { c.assign("worker-b", "one", 2) }, func(c *cluster, a *Allocator) error {
			free, done, err := a.ReleaseAddresses(c.ctx(), []Release{{Addr: netip.MustParseAddr("10.77.0.1"), HandleID: "k8s-pod-network.one"}})
			if err == nil && (len(free) != 0 || len(done) != 1) {
				err = fmt.Errorf("unallocated %v, done %v", free, done)
			}
			return err
		}, del, releases},
		{"change of owner", func(c *cluster) { c.assignBoth("worker-b", "one") }, func(c *cluster, a *Allocator) error {
			return a.ChangeOwner(c.ctx(), handleOfOne, ofAll("launcher-b", true))
		}, del, releases},
		{"disowning", func(c *cluster) { c.machine("launcher-a", "launcher-b") }, func(c *cluster, a *Allocator) error {
			_, err := a.Disown(c.ctx(), leaving("launcher-a", true))
			return err
		}, del, releases},
		{"disowning that releases", func(c *cluster) { c.machine("launcher-a", "") }, func(c *cluster, a *Allocator) error {
			released, err := a.Disown(c.ctx(), leaving("launcher-a", true))
			if err == nil && !released {
				err = errors.New("not released")
			}
			return err
		}, del, releases},
		{"release of affinities", func(c *cluster) {
			c.assign("worker-b", "other", 65)
			if _, _, err := c.ipam.ReleaseAddresses(c.ctx(), []Release{{Addr: netip.MustParseAddr("10.77.0.64")}}); err != nil {
				c.Fatal(err)
			}
		}, func(c *cluster, a *Allocator) error { return a.RemoveHost(c.ctx(), "worker-b") },
			func(c *cluster) error { return c.ipam.RemoveHost(c.ctx(), "worker-b") }, disowns},
	}
}

// forEveryVerb runs a test for each verb on both kinds of engines, with a
// fresh cluster each time.
func forEveryVerb(t *testing.T, test func(t *testing.T, v verb, fresh func() *cluster)) {
	t.Helper()
	for _, v := range verbs() {
		for name, options := range map[string]memory.Options{"transactional": {}, "sequential": {NonTransactional: true}} {
			t.Run(v.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, v, func() *cluster {
					c := newCluster(t, options)
					c.p26()
					c.pool("pods-v6", "fd00:77:1::/112", 122)
					v.prepare(c)
					return c
				})
			})
		}
	}
}

// mortal is the datastore as a process sees it that is killed after a number
// of changes. On an engine without transactions each change is a request of
// its own.
type mortal struct {
	datastore.Store
	left int
	dead bool
}

var errKilled = errors.New("killed")

func (m *mortal) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	if m.dead {
		return nil, errKilled
	}
	return m.Store.Read(ctx, queries...)
}

func (m *mortal) Write(ctx context.Context, steps ...datastore.Step) (datastore.Written, error) {
	if m.Transactional() {
		if m.dies() {
			return nil, errKilled
		}
		return m.Store.Write(ctx, steps...)
	}
	all := datastore.Written{}
	for _, step := range steps {
		for _, mutation := range step {
			if m.dies() {
				return all, errKilled
			}
			written, err := m.Store.Write(ctx, datastore.Step{mutation})
			for key, revision := range written {
				all[key] = revision
			}
			if err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func (m *mortal) dies() bool {
	m.dead = m.dead || m.left == 0
	m.left--
	return m.dead
}

// TestKilledAnywhere: whatever a killed verb left, counts are never too low,
// the runtime's next verb cleans up, and the host works on.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	forEveryVerb(t, func(t *testing.T, v verb, fresh func() *cluster) {
		for changes := 0; ; changes++ {
			c := fresh()
			store := &mortal{Store: c.store, left: changes}
			err := v.run(c, New(store, Options{Now: c.clock.Now}))
			if !store.dead {
				if err != nil || changes == 0 {
					t.Fatalf("not killed after %d changes: %v", changes, err)
				}
				return
			}
			verifySurvivable(t, c.store)
			c.clock.advance(time.Millisecond)
			if err := v.recover(c); err != nil {
				t.Fatalf("recovery after %d changes: %v", changes, err)
			}
			for _, host := range []string{"worker-a", "worker-b", "worker-c"} {
				c.assign(host, "next-"+host, 1)
				c.release("next-" + host)
			}
			if v.kind != disowns {
				c.wantGone("k8s-pod-network.one")
			}
			verifyConsistent(t, c.store)
			if t.Failed() {
				t.Fatalf("after %d changes:\n%s", changes, c.store.Dump())
			}
		}
	})
}

// TestAnswerLostAnywhere: whether or not the write was done, the verb finds
// out and completes.
func TestAnswerLostAnywhere(t *testing.T) {
	t.Parallel()
	forEveryVerb(t, func(t *testing.T, v verb, fresh func() *cluster) {
		for _, done := range []bool{true, false} {
			for number := 1; ; number++ {
				c := fresh()
				writes, lost := 0, false
				lose := func(_ context.Context, call memory.Call) error {
					if !call.IsWrite() {
						return nil
					}
					if writes++; writes != number {
						return nil
					}
					lost = true
					return memory.LoseAnswer(call)
				}
				hooks := memory.Hooks{After: lose}
				if !done {
					hooks = memory.Hooks{Before: lose}
				}
				c.store.SetHooks(hooks)
				if err := v.run(c, c.ipam); err != nil {
					t.Errorf("write %d, done %v: %v", number, done, err)
				}
				verifyConsistent(t, c.store)
				if t.Failed() {
					t.Fatalf("write %d, done %v:\n%s", number, done, c.store.Dump())
				}
				if !lost {
					break
				}
			}
		}
	})
}

// TestUnreachableOnce: a verb that fails because one call did leaves nothing
// behind, since it can still clean up.
func TestUnreachableOnce(t *testing.T) {
	t.Parallel()
	forEveryVerb(t, func(t *testing.T, v verb, fresh func() *cluster) {
		for number := 1; ; number++ {
			c := fresh()
			calls, failed := 0, false
			c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
				if calls++; calls != number {
					return nil
				}
				failed = true
				return memory.Down(call)
			}})
			err := v.run(c, c.ipam)
			if !failed {
				return
			}
			if err != nil && !errors.Is(err, datastore.ErrUnavailable) {
				t.Errorf("call %d: %v", number, err)
			}
			verifySurvivable(t, c.store)
			if v.kind == adds {
				verifyConsistent(t, c.store) // it has cleaned up itself
			}
			if err := v.recover(c); err != nil {
				t.Errorf("recovery after call %d: %v", number, err)
			}
			verifyConsistent(t, c.store)
			if t.Failed() {
				t.Fatalf("call %d:\n%s", number, c.store.Dump())
			}
		}
	})
}

// TestConflictAnywhere: every object that is written has just been rewritten
// by someone else, once.
func TestConflictAnywhere(t *testing.T) {
	t.Parallel()
	forEveryVerb(t, func(t *testing.T, v verb, fresh func() *cluster) {
		for number := 1; ; number++ {
			c := fresh()
			writes, met := 0, false
			c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
				if !call.IsWrite() {
					return nil
				}
				if writes++; writes == number {
					met = true
					c.rewrite(call)
				}
				return nil
			}})
			if err := v.run(c, c.ipam); err != nil {
				t.Errorf("write %d: %v", number, err)
			}
			verifyConsistent(t, c.store)
			if t.Failed() {
				t.Fatalf("write %d:\n%s", number, c.store.Dump())
			}
			if !met {
				return
			}
		}
	})
}

// rewrite gives every existing object of a call a new revision.
func (c *cluster) rewrite(call memory.Call) {
	for _, step := range call.Steps {
		for _, mutation := range step {
			if raw, ok := c.store.Raw(mutation.Key.Path()); ok {
				c.store.Plant(mutation.Key.Path(), raw)
			}
		}
	}
}

// verifySurvivable checks what must hold at every moment: blocks are whole,
// and no handle counts too little.
func verifySurvivable(t *testing.T, store *memory.Store) {
	t.Helper()
	newAuditor().survivable(t, store)
}

func (a *auditor) survivable(t *testing.T, store *memory.Store) {
	t.Helper()
	held := map[string]map[netip.Prefix]int{}
	for _, path := range store.Paths() {
		if key, ok := model.ParsePath(path); ok {
			if key, ok := key.(model.BlockKey); ok {
				raw, _ := store.Raw(path)
				a.whole(t, key, raw, held)
			}
		}
	}
	for id, blocks := range held {
		var handle model.Handle
		raw, _ := store.Raw(model.HandleKey{ID: id}.Path())
		if err := json.Unmarshal([]byte(raw), &handle); err != nil {
			t.Errorf("handle %s: %q, %v", id, raw, err)
		}
		for cidr, count := range blocks {
			if handle.Blocks[cidr] < count {
				t.Errorf("handle %s counts %d in %s, which holds %d", id, handle.Blocks[cidr], cidr, count)
			}
		}
	}
}

// wantGone checks that neither a handle nor a block knows an id.
func (c *cluster) wantGone(id string) {
	c.Helper()
	for _, path := range c.store.Paths() {
		key, ok := model.ParsePath(path)
		if !ok {
			continue
		}
		switch key := key.(type) {
		case model.HandleKey:
			if key.ID == id {
				c.Errorf("handle %s is left", id)
			}
		case model.BlockKey:
			if block := c.block(key.CIDR.String()); len(block.Held(id)) > 0 {
				c.Errorf("block %s still holds addresses of %s", key.CIDR, id)
			}
		}
	}
}
