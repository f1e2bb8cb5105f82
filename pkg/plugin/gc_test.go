package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

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
