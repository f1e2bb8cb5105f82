package plugin

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/workload"
)

func TestRecordRaces(t *testing.T) {
	t.Parallel()
	t.Run("a newer sandbox's record stays", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add(inPod)
		n.dataplane.links = map[string]workload.Attachment{}
		n.dataplane.during = func() {
			n.dataplane.during = nil
			n.add(inPod, container("newer"))
			n.dataplane.fail["Confirm"] = cnierr.New(cnierr.Overtaken, "the link is gone")
		}
		_, err := n.runAdd(n.call(invocation.Add, n.config(), inPod, container("late")))
		wantCode(t, err, cnierr.Overtaken)
		for _, endpoint := range n.endpoints() {
			if endpoint.Spec.ContainerID != "newer" {
				t.Errorf("the record names %s", endpoint.Spec.ContainerID)
			}
		}
	})
	t.Run("the record changes once: written on the new revision", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add(inPod)
		n.dataplane.during = func() {
			n.dataplane.during = nil
			n.touchEndpoint()
		}
		n.add(inPod, container("c2"))
		for _, endpoint := range n.endpoints() {
			if endpoint.Spec.ContainerID != "c2" {
				t.Errorf("the record names %s", endpoint.Spec.ContainerID)
			}
		}
	})
	t.Run("Network/37 the write's answer is lost, and the next read fails", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		var lost, failed bool
		n.store.SetHooks(memory.Hooks{
			Before: func(_ context.Context, call memory.Call) error {
				if !lost || failed {
					return nil
				}
				failed = true
				return memory.Down(call)
			},
			After: func(_ context.Context, call memory.Call) error {
				if !call.IsWrite() || !strings.Contains(call.String(), "WorkloadEndpoint") || lost {
					return nil
				}
				lost = true
				return memory.LoseAnswer(call)
			},
		})
		_, err := n.runAdd(n.call(invocation.Add, n.config(), inPod))
		wantCode(t, err, cnierr.TryAgainLater)
		n.nothingLeft()
	})
	t.Run("the write's answer is lost", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		lost := false
		n.store.SetHooks(memory.Hooks{After: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() && strings.Contains(call.String(), "WorkloadEndpoint") && !lost {
				lost = true
				return memory.LoseAnswer(call)
			}
			return nil
		}})
		n.add(inPod)
		if len(n.endpoints()) != 1 || !lost {
			t.Errorf("%d endpoints, lost %v", len(n.endpoints()), lost)
		}
	})
}

// touchEndpoint changes the revision of every endpoint.
func (n *node) touchEndpoint() {
	for _, entry := range n.entries(datastore.ListResources{Kind: model.KindWorkloadEndpoint}) {
		value, _ := n.store.Raw(entry.Key.Path())
		n.store.Plant(entry.Key.Path(), value)
	}
}

func TestUnknownMembersOfRecordSurvive(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.add(inPod)
	for name := range n.endpoints() {
		path := model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: name}.Path()
		value, _ := n.store.Raw(path)
		n.store.Plant(path, strings.Replace(value, `"spec":{`, `"spec":{"qosControls":{"ingressBandwidth":7},`, 1))
		n.add(inPod, container("c2"))
		var after struct{ Spec map[string]json.RawMessage }
		value, _ = n.store.Raw(path)
		if err := json.Unmarshal([]byte(value), &after); err != nil {
			t.Fatal(err)
		}
		if string(after.Spec["qosControls"]) != `{"ingressBandwidth":7}` {
			t.Errorf("record %s", value)
		}
	}
}
