package ipamplugin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

// TestKilledMachineAdd: an ADD is killed before each of its writes, or after
// it; repeated, it has one address, and DEL at the end leaves nothing.
func TestKilledMachineAdd(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		forBothKinds(t, func(t *testing.T, n *node) {
			options := memory.Options{NonTransactional: !n.store.Transactional()}
			for number := 1; killedAt(t, newMachineNode(t, options), number, done) && !t.Failed(); number++ {
				continue
			}
		})
	}
}

// killedAt reports whether ADD had an nth write.
func killedAt(t *testing.T, n *node, number int, done bool) bool {
	t.Helper()
	killed, met := errors.New("killed"), 0
	n.store.SetHooks(memory.Hooks{
		Before: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() {
				met++
			}
			if met > number || met == number && !done && call.IsWrite() {
				return killed
			}
			return nil
		},
		After: func(_ context.Context, call memory.Call) error {
			if met >= number && call.IsWrite() {
				return killed
			}
			return nil
		},
	})
	_, err := n.add(n.launch(invocation.Add, source, "c1"))
	n.store.SetHooks(memory.Hooks{})
	if met < number {
		if err != nil || number == 1 {
			t.Errorf("not killed at write %d: %v", number, err)
		}
		return false
	}
	// The next ADD waits for whoever may be between two writes.
	synctest.Test(t, func(t *testing.T) {
		n.t = t
		if addresses, _ := n.connect(source, "c1"); len(addresses) != 1 {
			t.Errorf("killed at write %d: addresses %v", number, addresses)
		}
		n.wantOwners(source, "")
		n.runs(true)
		n.disconnect(source, "c1")
		n.wantNothing()
	})
	return true
}

// TestMachineHandleContended: two first pods of a machine are connected at
// once, on two nodes.
func TestMachineHandleContended(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		n.launcher(destination, "")
		begun := false
		n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() && !begun {
				begun = true
				rival := *n.plugin
				rival.Now = func() time.Time { return n.now.Add(1) }
				rival.Open = func(context.Context, *netconf.Config, string) (connect.Connection, error) {
					return connect.Connection{Store: n.store.Competitor()}, nil
				}
				call := n.launch(invocation.Add, destination, "c2", "nodename", "worker-c", "ipam_lock_file", n.dir+"/other.lock")
				call.Deliver = func(types.Result) error { return nil }
				if err := rival.Add(deadline(t), call); err != nil {
					t.Error(err)
				}
			}
			return nil
		}})
		if addresses, _ := n.connect(source, "c1"); len(addresses) != 1 {
			t.Errorf("addresses %v", addresses)
		}
		n.wantOwners(source, "")
	})
}

// TestOtherPodsCostNothing: neither a pod of another name nor, where nothing
// leads to the API server, a launcher is looked at.
func TestOtherPodsCostNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options memory.Options
		pod     string
		members []any
		looked  bool
	}{
		"a pod":                            {memory.Options{NonTransactional: true}, "web-0", nil, false},
		"a launcher":                       {memory.Options{NonTransactional: true}, source, nil, true},
		"a launcher, in-cluster":           {memory.Options{NonTransactional: true}, source, []any{"policy", map[string]any{}}, true},
		"a launcher, etcd":                 {memory.Options{}, source, nil, true},
		"a launcher, etcd and nothing":     {memory.Options{}, source, []any{"policy", map[string]any{}}, false},
		"a launcher, etcd with kubeconfig": {memory.Options{}, source, []any{"policy", map[string]any{}, "kubernetes", map[string]any{"kubeconfig": "/k"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newMachineNode(t, test.options)
			n.store.ForgetCalls()
			n.connect(test.pod, "c1", test.members...)
			n.disconnect(test.pod, "c1", test.members...)
			var pods, instances, machines int
			for _, call := range n.store.Calls() {
				for _, query := range call.Queries {
					get, _ := query.(datastore.Get)
					key, _ := get.Key.(model.ResourceKey)
					switch key.Kind {
					case model.KindPod:
						pods++
					case model.KindVirtualMachineInstance:
						instances++
					case model.KindVirtualMachine:
						machines++
					}
				}
			}
			want := [3]int{}
			if test.looked {
				want = [3]int{2, 2, 1} // ADD: pod, instance; DEL: these, and the machine
			}
			if got := [3]int{pods, instances, machines}; got != want {
				t.Errorf("%v gets of pods, instances and machines, want %v", got, want)
			}
		})
	}
}

// TestFirstMachineAddReadsOnce: what the batch holds is not read again for the
// machine's own handle.
func TestFirstMachineAddReadsOnce(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		n.store.ForgetCalls()
		n.connect(source, "c1")
		seen := map[string]int{}
		for _, call := range n.store.Calls() {
			for _, query := range call.Queries {
				seen[query.String()]++
			}
		}
		for query, times := range seen {
			if times > 1 {
				t.Errorf("%s is read %d times", query, times)
			}
		}
	})
}
