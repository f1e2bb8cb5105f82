package ipamplugin

import (
	"context"
	"slices"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/hostlock"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

// TestWaitingReads: an ADD that another process keeps from the lock reads its
// batch meanwhile, and still shares the block that the other one claims. One for
// a certain address reads when it has the lock.
func TestWaitingReads(t *testing.T) {
	t.Parallel()
	for args, early := range map[string]bool{"IgnoreUnknown=1": true, "IP=10.77.0.7": false} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			affinities := datastore.Query(datastore.ListAffinities{Type: model.AffinityHost, Host: nodeName, Family: model.IPv4})
			var read bool
			n.plugin.TakeLock = func(ctx context.Context, path string) (*hostlock.Lock, error) {
				if ctx.Err() != nil {
					return nil, hostlock.ErrHeld
				}
				read = slices.ContainsFunc(n.store.Calls(), func(call memory.Call) bool {
					return slices.Contains(call.Queries, affinities)
				})
				n.plugin.TakeLock = nil
				other := n.call(invocation.Add, n.config())
				other.ContainerID = "other"
				if _, err := n.add(other); err != nil {
					t.Error(err)
				}
				return hostlock.Acquire(ctx, path)
			}
			n.store.ForgetCalls()
			call := n.call(invocation.Add, n.config())
			call.Args = args
			if _, err := n.add(call); err != nil {
				t.Fatal(err)
			}
			if read != early {
				t.Errorf("the affinities were read before the lock was had: %v, want %v", read, early)
			}
			answers, err := n.store.Read(deadline(t), datastore.ListBlocks{Family: model.IPv4})
			if err != nil {
				t.Fatal(err)
			}
			if blocks := len(answers[0].Entries); early && blocks != 1 {
				t.Errorf("%d blocks were claimed, want 1", blocks)
			}
		})
	}
}
