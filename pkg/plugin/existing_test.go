package plugin

import (
	"slices"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/model"
)

func TestExistingEndpoint(t *testing.T) {
	t.Parallel()
	t.Run("Network/34 no new address, network name appended", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		first := n.add()
		again, err := n.runAdd(n.call(invocation.Add, n.config("name", "other")))
		second := n.result(again, err)
		if len(n.allocated()) != 1 || !second.IPs[0].Address.IP.Equal(first.IPs[0].Address.IP) {
			t.Errorf("addresses %v, result %v", n.allocated(), second.IPs)
		}
		for _, endpoint := range n.endpoints() {
			if !slices.Equal(endpoint.Spec.Profiles, []string{"net", "other"}) {
				t.Errorf("profiles %v", endpoint.Spec.Profiles)
			}
		}
		if adds := len(n.dataplane.requests); adds != 1 {
			t.Errorf("networked %d times", adds)
		}
	})
	t.Run("Network/35 a failed write keeps the address", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add()
		n.failWrites(model.KindWorkloadEndpoint)
		_, err := n.runAdd(n.call(invocation.Add, n.config("name", "other")))
		wantCode(t, err, cnierr.TryAgainLater)
		if len(n.allocated()) != 1 || len(n.dataplane.links) != 1 {
			t.Error("the address or the link is gone")
		}
	})
	t.Run("Network/72 interface missing: networked again with its address", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		first := n.add()
		clear(n.dataplane.inPod)
		again := n.add()
		if len(n.dataplane.requests) != 2 || len(n.allocated()) != 1 || !again.IPs[0].Address.IP.Equal(first.IPs[0].Address.IP) {
			t.Errorf("%d times networked, addresses %v, result %v", len(n.dataplane.requests), n.allocated(), again.IPs)
		}
		n.del()
		n.nothingLeft()
	})
	t.Run("Network/72 address not ours any more: as a first ADD", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add()
		clear(n.dataplane.inPod)
		for _, family := range []model.Family{model.IPv4} {
			for _, entry := range n.entries(datastore.ListBlocks{Family: family}) {
				n.store.Uproot(entry.Key.Path())
			}
		}
		for _, entry := range n.entries(datastore.ListHandles{}) {
			n.store.Uproot(entry.Key.Path())
		}
		n.add()
		if len(n.allocated()) != 1 || len(n.dataplane.requests) != 2 {
			t.Errorf("allocated %v", n.allocated())
		}
	})
	t.Run("a DEL was stopped after the release: as a first ADD", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add()
		release := &ipamplugin.Plugin{Environment: n.plugin.Environment, NotesDirectory: n.plugin.NotesDirectory}
		if err := release.Del(deadline(t), n.call(invocation.Del, n.config())); err != nil {
			t.Fatal(err)
		}
		again := n.add().IPs[0].Address.IP.String()
		if held := n.allocated(); held[again] != "net.c1" || len(n.dataplane.requests) != 2 {
			t.Errorf("the result tells %s, allocated %v", again, held)
		}
		n.del()
		n.nothingLeft()
	})
	t.Run("Network/72 another interface: the recorded result", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		first := n.add()
		second := n.add(ifName("eth1"))
		if len(n.dataplane.requests) != 1 || second.Interfaces[1].Name != "eth0" || second.Interfaces[0].Name != first.Interfaces[0].Name {
			t.Errorf("result %+v", second.Interfaces[1])
		}
		n.del(ifName("eth1"))
		if len(n.allocated()) != 1 || len(n.endpoints()) != 1 {
			t.Error("DEL of what was never networked took something")
		}
		n.del()
		n.nothingLeft()
	})
}
