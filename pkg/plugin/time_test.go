package plugin

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/hostlock"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

// TestDatastoreHangsInADD: the deadline ends the verb, 30 s more its undoing,
// and a link needs no datastore to be removed.
func TestDatastoreHangsInADD(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.dataplane.during = func() {
			n.store.SetHooks(memory.Hooks{Before: func(ctx context.Context, call memory.Call) error {
				<-ctx.Done()
				return memory.Down(call)
			}})
		}
		call := n.call(invocation.Add, n.config())
		start := time.Now()
		wantCode(t, n.plugin.Add(context.Background(), call), cnierr.TryAgainLater)
		if waited := time.Since(start); waited != 120*time.Second {
			t.Errorf("waited %v, want 90 s and 30 s", waited)
		}
		if len(n.dataplane.links) > 0 {
			t.Errorf("links are left: %v", n.dataplane.links)
		}
	})
}

// TestLockIsNotObtained: a stopped holder of the IPAM lock must not stop a
// node ("where we go beyond the reference" 3), and a verb waits for it once.
func TestLockIsNotObtained(t *testing.T) {
	t.Parallel()
	// held has another process hold the lock.
	held := func(n *node) {
		n.plugin.TakeLock = func(ctx context.Context, _ string) (*hostlock.Lock, error) {
			<-ctx.Done()
			return nil, hostlock.ErrHeld
		}
	}
	warnedOnce := func(t *testing.T, n *node) {
		t.Helper()
		if warned := strings.Count(n.stderr.String(), "going on without the IPAM lock"); warned != 1 {
			t.Errorf("warned %d times, want once:\n%s", warned, n.stderr.String())
		}
	}
	t.Run("ADD and DEL wait 90 s and then serve", func(t *testing.T) {
		t.Parallel()
		for _, verb := range []invocation.Verb{invocation.Add, invocation.Del} {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				call := n.call(verb, n.config())
				call.Deliver = func(types.Result) error { return nil }
				held(n)
				start := time.Now()
				if err := invocation.Dispatch(context.Background(), n.plugin, call); err != nil {
					t.Errorf("%s: %v", verb, err)
				}
				if waited := time.Since(start); waited != 90*time.Second {
					t.Errorf("%s took %v, want the 90 s of waiting", verb, waited)
				}
				warnedOnce(t, n)
			})
		}
	})
	t.Run("a failed ADD has time left to release", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			// The lock is given back before the data plane works; the undoing
			// then finds it taken by another process.
			call := n.call(invocation.Add, n.config())
			call.Deliver = func(types.Result) error { return context.Canceled }
			n.dataplane.during = func() { held(n) }
			start := time.Now()
			if err := n.plugin.Add(context.Background(), call); err == nil {
				t.Error("ADD succeeded")
			}
			if waited := time.Since(start); waited > 30*time.Second {
				t.Errorf("undoing took %v", waited)
			}
			n.nothingLeft()
		})
	})
}

// TestWaitingReads: an ADD reads its batch before it is its turn, and still
// shares the block that another one claims meanwhile.
func TestWaitingReads(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{"any address": "", "certain address": "IP=10.77.0.7"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			affinities := datastore.Query(datastore.ListAffinities{Type: model.AffinityHost, Host: nodeName, Family: model.IPv4})
			n.plugin.TakeLock = func(ctx context.Context, path string) (*hostlock.Lock, error) {
				if !slices.ContainsFunc(n.store.Calls(), func(call memory.Call) bool { return slices.Contains(call.Queries, affinities) }) {
					t.Error("the affinities were not read before the lock was had")
				}
				n.plugin.TakeLock = nil
				n.add(func(c *invocation.Call) { c.ContainerID = "other" })
				return hostlock.Acquire(ctx, path)
			}
			n.store.ForgetCalls()
			n.add(func(c *invocation.Call) { c.Args = args })
			if blocks := n.entries(datastore.ListBlocks{Family: model.IPv4}); len(blocks) != 1 {
				t.Errorf("%d blocks were claimed, want 1", len(blocks))
			}
		})
	}
}

// TestUndoOutlastsTheDeadline: what is too slow for the verb's deadline is
// undone within the 30 s of its own.
func TestUndoOutlastsTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.dataplane.during = func() {
			n.store.SetHooks(memory.Hooks{Before: func(ctx context.Context, call memory.Call) error {
				slow := time.NewTimer(1100 * time.Millisecond)
				defer slow.Stop()
				select {
				case <-slow.C:
					return nil
				case <-ctx.Done():
					return memory.Down(call)
				}
			}})
		}
		call := n.call(invocation.Add, n.config("timeout_seconds", 1))
		wantCode(t, n.plugin.Add(context.Background(), call), cnierr.TryAgainLater)
		n.store.SetHooks(memory.Hooks{})
		n.nothingLeft()
	})
}
