package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// reboot leaves a host with so many containers that are gone.
func (c *cluster) reboot(containers int) GCRequest {
	c.Helper()
	for i := range containers {
		c.assign("worker-b", fmt.Sprint("c", i), 1)
	}
	c.clock.advance(time.Minute)
	c.store.ForgetCalls()
	return GCRequest{Network: "k8s-pod-network", Host: "worker-b", Before: c.clock.Now()}
}

// requests counts what a server that has no batches is sent.
func (c *cluster) requests() int {
	count := 0
	for _, call := range c.store.Calls() {
		count += len(call.Queries)
		for _, step := range call.Steps {
			for _, mutation := range step {
				if mutation.Op != datastore.Expect {
					count++
				}
			}
		}
	}
	return count
}

func (c *cluster) wantCost(rounds, requests int) {
	c.Helper()
	if got := c.store.Rounds(); got != rounds || c.requests() != requests {
		c.Errorf("%d rounds and %d requests, want %d and %d", got, c.requests(), rounds, requests)
		for _, call := range c.store.Calls() {
			c.Logf("%.200s", call.String())
		}
	}
}

func (c *cluster) collect(r GCRequest, want int) {
	c.Helper()
	done, err := c.ipam.ReleaseStale(c.ctx(), r)
	if err != nil || len(done) != want {
		c.Errorf("%d done, want %d; %v", len(done), want, err)
	}
}

// TestCollectCost: the rounds do not grow with the containers, but for what one
// transaction takes; of requests each container costs two, those that read and
// delete its handle.
func TestCollectCost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options    memory.Options
		containers int
		rounds     int
		requests   int
	}{
		// own blocks' names | blocks | handles | block and handles
		"transactional, 60":  {memory.Options{}, 60, 4, 5 + 1 + 60 + 1 + 60},
		"transactional, 110": {memory.Options{}, 110, 6, 5 + 2 + 110 + 3 + 110},
		"sequential, none":   {memory.Options{NonTransactional: true}, 0, 2, 5 + 1},
		"sequential, 1":      {memory.Options{NonTransactional: true}, 1, 5, 5 + 1 + 1 + 1 + 1},
		// own blocks' names | blocks | handles | block | handles
		"sequential, 60":  {memory.Options{NonTransactional: true}, 60, 5, 5 + 1 + 60 + 1 + 60},
		"sequential, 110": {memory.Options{NonTransactional: true}, 110, 8, 5 + 2 + 110 + 3 + 110},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, test.options)
			c.p26()
			c.assign("worker-b", "running", 1)
			r := c.reboot(test.containers)
			r.ValidContainers = map[string]bool{"running": true}
			c.collect(r, test.containers)
			c.wantCost(test.rounds, test.requests)
			verifyConsistent(t, c.store)
			if left, err := c.ipam.AddressesByHandle(c.ctx(), "k8s-pod-network.running"); err != nil || len(left) != 1 {
				t.Errorf("the running container has %v, %v", left, err)
			}
		})
	}
}

// TestCollectConflict: when a block changes meanwhile, just that is read again.
func TestCollectConflict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options          memory.Options
		rounds, requests int
	}{
		"transactional": {memory.Options{}, 5, 127 + 61},
		// the block's write | its read | its write
		"sequential": {memory.Options{NonTransactional: true}, 7, 127 + 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, test.options)
			c.p26()
			r := c.reboot(60)
			c.beforeWriteOf("10.77.0.0/26", func() { c.competitor().assign("worker-b", "other", 1) })
			c.collect(r, 60)
			c.wantCost(test.rounds, test.requests)
			verifyConsistent(t, c.store)
			if c.handle("other") == nil {
				t.Error("the other's address is gone")
			}
		})
	}
}

// TestCollectGoesOn: what cannot be released stands alone at last, without one
// try for each container, and the failures of one cause are one sentence.
func TestCollectGoesOn(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		r := c.reboot(60)
		broken := model.HandleKey{ID: "k8s-pod-network.c17"}
		c.store.SetHooks(memory.Hooks{
			Before: func(_ context.Context, call memory.Call) error {
				if c.store.Transactional() && writes(call, broken) {
					return memory.Down(call)
				}
				return nil
			},
			BeforeStep: func(_ context.Context, call memory.Call, _ int) error {
				if writes(call, broken) {
					return memory.Down(call)
				}
				return nil
			},
		})
		done, err := c.ipam.ReleaseStale(c.ctx(), r)
		if len(done) != 59 || err == nil || strings.Count(err.Error(), "stale addresses of") != 1 || !strings.Contains(err.Error(), "stale addresses of k8s-pod-network.c17: ") {
			t.Errorf("%d done, %v", len(done), err)
		}
		if rounds := c.store.Rounds(); rounds > 45 {
			t.Errorf("%d rounds", rounds)
		}
		c.store.SetHooks(memory.Hooks{})
		r.NoteIDs = []string{broken.ID}
		c.collect(r, 1)
		verifyConsistent(t, c.store)
	})
}

// TestCollectLate: the deadline passes in the middle.
func TestCollectLate(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		r := c.reboot(60)
		ctx, cancel := context.WithCancelCause(c.ctx())
		defer cancel(nil)
		c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() {
				cancel(context.DeadlineExceeded)
				return memory.Down(call)
			}
			return nil
		}})
		calls := len(c.store.Calls())
		done, err := c.ipam.ReleaseStale(ctx, r)
		if len(done) != 0 || err == nil || !strings.Contains(err.Error(), "and 57 more: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d done, %v", len(done), err)
		}
		if tried := len(c.store.Calls()) - calls; tried != 4 {
			t.Errorf("%d calls, want none after the one that was late", tried)
		}
	})
}

// TestCollectKilled: killed before any of its requests, and repeated, GC leaves
// nothing, whatever it had done.
func TestCollectKilled(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		options := memory.Options{NonTransactional: !c.store.Transactional()}
		for after := 0; ; after++ {
			c := newCluster(t, options)
			c.p26()
			c.pool("pods-v6", "fd00:77:1::/112", 122)
			c.fillAllButOneEach("worker-a")
			for i := range 6 {
				dual := c.request("worker-b", fmt.Sprint("c", i), 0)
				dual.Count6 = 1
				if _, err := c.ipam.Assign(c.ctx(), dual); err != nil {
					t.Fatal(err)
				}
			}
			c.assign("worker-b", "c0", 2) // borrowed
			r := c.reboot(0)
			r.NoteIDs = []string{"k8s-pod-network.c0"}
			r.Note = func(id string) { r.NoteIDs = append(r.NoteIDs, id) }
			process := &mortal{Store: c.store, left: after}
			_, _ = New(process, Options{Now: c.clock.Now}).ReleaseStale(c.ctx(), r) // the dead report nothing
			done, err := c.ipam.ReleaseStale(c.ctx(), r)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				c.wantGone(fmt.Sprint("k8s-pod-network.c", i))
			}
			verifyConsistent(t, c.store)
			if !process.dead {
				if len(done) != len(r.NoteIDs) { // of the first, which is all
					t.Errorf("done %v", done)
				}
				return
			}
		}
	})
}

// TestCollectUnreadableBorrowed: a container whose other block makes no sense
// keeps its handle, and no other container.
func TestCollectUnreadableBorrowed(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.assign("worker-b", "both", 65)
		c.assign("worker-b", "one", 1)
		r := c.reboot(0)
		key := model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}
		good, _ := c.store.Raw(key.Path())
		c.plant(key, `{`)
		done, err := c.ipam.ReleaseStale(c.ctx(), r)
		if len(done) != 1 || done[0] != "k8s-pod-network.one" || c.handle("both") == nil {
			t.Errorf("done %v, handle %v", done, c.handle("both"))
		}
		wantText(t, err, "10.77.0.0/26", "k8s-pod-network.both")
		c.store.Plant(key.Path(), good)
		c.collect(r, 1)
		c.wantGone("k8s-pod-network.both")
	})
}

// TestCollectGivesBack: a block that becomes empty goes back when its pool
// selects the host no more (IPAM/46), and stays otherwise.
func TestCollectGivesBack(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.collect(c.reboot(5), 5)
		if c.block("10.77.0.0/26") == nil {
			t.Error("the empty block is gone")
		}
		r := c.reboot(5)
		c.p26(`"nodeSelector":"nowhere == 'true'"`)
		c.collect(r, 5)
		if c.block("10.77.0.0/26") != nil {
			t.Error("the empty block is left")
		}
	})
}
