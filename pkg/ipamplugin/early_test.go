package ipamplugin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/hostlock"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

// TestWaitingReads: an ADD reads its batch before it is its turn, and still
// shares the block that another one claims meanwhile.
func TestWaitingReads(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"IgnoreUnknown=1", "IP=10.77.0.7"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			affinities := datastore.Query(datastore.ListAffinities{Type: model.AffinityHost, Host: nodeName, Family: model.IPv4})
			n.plugin.TakeLock = func(ctx context.Context, path string) (*hostlock.Lock, error) {
				if !slices.ContainsFunc(n.store.Calls(), func(call memory.Call) bool { return slices.Contains(call.Queries, affinities) }) {
					t.Error("the affinities were not read before the lock was had")
				}
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
			answers, err := n.store.Read(deadline(t), datastore.ListBlocks{Family: model.IPv4})
			if err != nil {
				t.Fatal(err)
			}
			if blocks := len(answers[0].Entries); blocks != 1 {
				t.Errorf("%d blocks were claimed, want 1", blocks)
			}
		})
	}
}

// TestClaimedBlocks: claims are noted beside the lock file, and old notes go.
func TestClaimedBlocks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	folder := filepath.Join(n.dir, "run", "claimed-blocks")
	notes := func() (names []string) {
		t.Helper()
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	n.mustAdd()
	if got, want := notes(), []string{"10-77-0-0-26"}; !slices.Equal(got, want) {
		t.Errorf("noted %v, want %v", got, want)
	}
	n.mustAdd()
	if err := os.WriteFile(filepath.Join(folder, "no block"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.now = n.now.Add(claimMemory + time.Second)
	n.mustAdd("ipam", map[string]any{"type": "calico-ipam", "assign_ipv4": "false", "assign_ipv6": "true"})
	// What is no note of ours stays: it is newer, by the clock of the test.
	if got, want := notes(), []string{"fd00-77--c200-122", "no block"}; !slices.Equal(got, want) {
		t.Errorf("noted %v, want %v", got, want)
	}
}
