package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

// reboot leaves so many containers behind, each of a pod of its own or of none.
func (n *node) reboot(containers int, pods bool) {
	n.t.Helper()
	for i := range containers {
		n.add(container(fmt.Sprint("c", i)), func(call *invocation.Call) {
			if pods {
				call.Args = fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAME=web-%d;K8S_POD_NAMESPACE=shop", i)
			}
		})
	}
	n.now = n.now.Add(time.Minute)
	n.store.ForgetCalls()
}

func (n *node) gc(members ...any) error {
	n.t.Helper()
	return n.plugin.GC(deadline(n.t), n.call(invocation.GC, n.config(append(members, "cni.dev/attachments", []any{})...)))
}

// TestGCCost: the round trips do not grow with the containers that are gone.
func TestGCCost(t *testing.T) {
	t.Parallel()
	for name, pods := range map[string]bool{"pods": true, "containers outside Kubernetes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.reboot(60, pods)
			if err := n.gc(); err != nil {
				t.Fatal(err)
			}
			// ready and own blocks' names | blocks | records | their deletion |
			// handles | block and handles
			if rounds := n.store.Rounds(); rounds != 6 {
				t.Errorf("%d round trips, want 6", rounds)
				for _, call := range n.store.Calls() {
					t.Logf("%.200s", call.String())
				}
			}
			n.nothingLeft()
			n.store.ForgetCalls()
			if err := n.gc(); err != nil || n.store.Rounds() != 3 {
				t.Errorf("with nothing to do: %v, %d round trips, want 3", err, n.store.Rounds())
			}
		})
	}
}

// TestGCReport: the failures of one cause are one sentence, of several
// sentences the code is 999, and what could be done was.
func TestGCReport(t *testing.T) {
	t.Parallel()
	t.Run("Network/65 no link can be removed", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.reboot(20, true)
		n.dataplane.fail["Remove"] = errors.New("busy")
		err := n.gc()
		wantCode(t, err, cnierr.Unclassified, "and 17 more: busy")
		if len(err.Error()) > 500 || len(n.allocated()) != 0 || len(n.endpoints()) != 0 {
			t.Errorf("%d addresses and %d records are left, the error is\n%v", len(n.allocated()), len(n.endpoints()), err)
		}
	})
	t.Run("Network/65 no record can be deleted", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.reboot(20, true)
		n.failWrites(model.KindWorkloadEndpoint)
		err := n.gc()
		wantCode(t, err, cnierr.Unclassified, "deleting", "web--0-eth0", "and 17 more: ", "connection refused")
		if len(n.allocated()) != 0 || len(n.dataplane.links) != 0 || len(n.endpoints()) != 20 {
			t.Error("GC did not go on after the error")
		}
	})
	t.Run("Network/65 one record cannot be deleted", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.reboot(20, true)
		n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() && strings.Contains(call.String()+",", "web--7-eth0,") {
				return memory.Down(call)
			}
			return nil
		}})
		wantCode(t, n.gc(), cnierr.TryAgainLater, "web--7-eth0")
		if left := n.endpoints(); len(left) != 1 || len(n.allocated()) != 0 {
			t.Errorf("%d records are left, want 1", len(left))
		}
	})
	t.Run("Network/65 one pod's record cannot be read", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.reboot(20, true)
		n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if !call.IsWrite() && strings.Contains(call.String(), "web--7-*") {
				return memory.Down(call)
			}
			return nil
		}})
		wantCode(t, n.gc(), cnierr.TryAgainLater, "pod shop/web-7")
		if left := n.endpoints(); len(left) != 1 || len(n.allocated()) != 0 {
			t.Errorf("%d records are left, want 1", len(left))
		}
	})
	t.Run("the blocks' names cannot be read", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.reboot(2, false)
		n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if strings.Contains(call.String(), "affinities") {
				return memory.Down(call)
			}
			return nil
		}})
		wantCode(t, n.gc(), cnierr.Unclassified, "blocks of "+nodeName)
		if len(n.endpoints()) != 0 || len(n.dataplane.links) != 0 {
			t.Error("GC did not go on after the error")
		}
		// The notes lead to the handles.
		if len(n.allocated()) != 0 {
			t.Errorf("allocated are still %v", n.allocated())
		}
	})
}

// TestGCRecordTaken: a record that a new sandbox takes over meanwhile is its
// own; the others are deleted all the same.
func TestGCRecordTaken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.reboot(20, true)
	taken := false
	n.store.SetHooks(memory.Hooks{Before: func(ctx context.Context, call memory.Call) error {
		if !call.IsWrite() || taken || !strings.Contains(call.String(), "web--7-eth0") {
			return nil
		}
		taken = true
		competitor := n.store.Competitor()
		for name, endpoint := range n.endpoints() {
			if endpoint.Spec.Pod == "web-7" {
				key := model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: name}
				answers, err := competitor.Read(ctx, datastore.Get{Key: key})
				if err != nil {
					return err
				}
				old, revision := datastore.One[model.WorkloadEndpoint](answers[0])
				changed := *old
				changed.Spec.ContainerID = "successor"
				_, err = competitor.Write(ctx, datastore.Step{datastore.Put(key, &changed, revision)})
				return err
			}
		}
		return nil
	}})
	if err := n.gc(); err != nil {
		t.Fatal(err)
	}
	left := n.endpoints()
	if len(left) != 1 {
		t.Errorf("%d records are left, want 1", len(left))
	}
	for _, endpoint := range left {
		if endpoint.Spec.ContainerID != "successor" {
			t.Errorf("the record of %s is left", endpoint.Spec.ContainerID)
		}
	}
}

// TestGCRecordContended: a record that others keep changing is tried a few
// times, and reported.
func TestGCRecordContended(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.reboot(2, true)
	tries := 0
	n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if call.IsWrite() && strings.Contains(call.String(), "web--1-eth0") {
			tries++
			key := call.Steps[0][0].Key
			return &datastore.ConflictError{Kind: datastore.ErrConflict, Key: key}
		}
		return nil
	}})
	wantCode(t, n.gc(), cnierr.TryAgainLater, "tried 6 times", "another writer")
	if tries != recordTries || len(n.allocated()) != 0 || len(n.dataplane.links) != 0 {
		t.Errorf("%d tries, or GC did not go on", tries)
	}
}

// TestGCRecordRaces: a kubelet reports on the pod, or the answer is lost, while
// GC deletes a record. Nothing leads to the record once its addresses are free.
func TestGCRecordRaces(t *testing.T) {
	t.Parallel()
	touch := func(n *node, _ memory.Call) error {
		for name := range n.endpointsQuietly() {
			path := model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: name}.Path()
			value, _ := n.store.Raw(path)
			n.store.Plant(path, value)
		}
		return nil
	}
	lose := func(_ *node, call memory.Call) error { return memory.LoseAnswer(call) }
	for name, test := range map[string]struct {
		happens func(*node, memory.Call) error
		times   int
		code    cnierr.Code
	}{
		"it is changed":                         {touch, recordTries - 1, cnierr.Unclassified},
		"it is changed all the time":            {touch, recordTries, cnierr.TryAgainLater},
		"whether it was deleted is not known":   {lose, recordTries - 1, cnierr.Unclassified},
		"whether it was deleted is never known": {lose, recordTries, cnierr.TryAgainLater},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.add(inPod)
			n.now = n.now.Add(time.Minute)
			left := test.times
			n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
				if !call.IsWrite() || !strings.Contains(call.String(), "WorkloadEndpoint") || left == 0 {
					return nil
				}
				left--
				return test.happens(n, call)
			}})
			err := n.plugin.GC(deadline(t), n.call(invocation.GC, n.config("cni.dev/attachments", nil)))
			if test.code != cnierr.Unclassified {
				wantCode(t, err, test.code, "endpoint record")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			n.nothingLeft()
		})
	}
}
