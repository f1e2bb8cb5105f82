package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
	"calico-cni/windows/hnssim"
)

func TestWindowsTunnel(t *testing.T) {
	t.Parallel()
	tunnel := func(w *windowsNode) (string, string) {
		entry := w.entries(datastore.Get{Key: model.ResourceKey{Kind: model.KindNode, Name: nodeName}})[0]
		return entry.Value.(*model.Node).VXLANTunnel()
	}
	writes := func(w *windowsNode) *int {
		count := 0
		w.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() && strings.Contains(call.String(), string(model.KindNode)) {
				count++
			}
			return nil
		}})
		return &count
	}
	t.Run("Windows/43 published once", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		result := w.addPod("web-0")
		base := netip.MustParsePrefix(result.IPs[0].Address.String()).Masked().Addr()
		if address, mac := tunnel(w); address != base.Next().String() || mac != "00:15:5d:ab:cd:ef" {
			t.Errorf("published is %s, %s", address, mac)
		}
		count := writes(w)
		w.addPod("web-1")
		if *count > 0 {
			t.Errorf("the node was written %d times although nothing changed", *count)
		}
	})
	t.Run("Windows/43 another MAC is published again", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.addPod("web-0")
		address, _ := tunnel(w)
		key := model.ResourceKey{Kind: model.KindNode, Name: nodeName}
		entry := w.entries(datastore.Get{Key: key})[0]
		changed, err := entry.Value.(*model.Node).WithVXLANTunnel(address, "00:00:00:00:00:01")
		if err != nil {
			t.Fatal(err)
		}
		w.put(datastore.Step{datastore.Put(key, changed, entry.Revision)})
		count := writes(w)
		w.addPod("web-1")
		if _, mac := tunnel(w); mac != "00:15:5d:ab:cd:ef" || *count != 1 {
			t.Errorf("published is %s after %d writes", mac, *count)
		}
	})
	t.Run("Windows/44 ProviderAddress is not the host's", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.addPod("web-0")
		w.engine.Misplace(netip.MustParseAddr("172.20.41.99"))
		key := model.ResourceKey{Kind: model.KindNode, Name: nodeName}
		w.put(datastore.Step{datastore.Put(key, &model.Node{Metadata: model.Metadata{Name: nodeName}}, w.entries(datastore.Get{Key: key})[0].Revision)})
		before := strings.Count(w.stderr.String(), "is not published")
		w.addPod("web-1")
		if got := strings.Count(w.stderr.String(), "is not published") - before; got != 3 {
			t.Errorf("%d tries were logged:\n%s", got, w.stderr.String())
		}
		if address, _ := tunnel(w); address != "" {
			t.Errorf("published is %s", address)
		}
	})
	t.Run("Windows/43 a node that changes meanwhile is read again", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		key := model.ResourceKey{Kind: model.KindNode, Name: nodeName}
		w.engine.Inject(hnssim.Fault{Call: "CreateNetwork", Times: 1, During: func() {
			w.put(datastore.Step{datastore.Put(key, &model.Node{Metadata: model.Metadata{Name: nodeName, Labels: map[string]string{"new": ""}}},
				w.entries(datastore.Get{Key: key})[0].Revision)})
		}})
		w.addPod("web-0")
		if address, _ := tunnel(w); address == "" {
			t.Errorf("nothing is published:\n%s", w.stderr.String())
		}
		if labels := w.entries(datastore.Get{Key: key})[0].Value.(*model.Node).Metadata.Labels; len(labels) != 1 {
			t.Errorf("the other writer's labels are %v", labels)
		}
	})
	t.Run("Windows/44 an account without rights to write nodes is not asked twice", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		tries := 0
		w.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if !call.IsWrite() || !strings.Contains(call.String(), string(model.KindNode)) {
				return nil
			}
			tries++
			return &datastore.UnavailableError{Reason: datastore.Refused, Doing: call.String(), Err: errors.New("forbidden")}
		}})
		w.addPod("web-0")
		if tries != 1 || !strings.Contains(w.stderr.String(), "rights of the node agent") {
			t.Errorf("%d tries:\n%s", tries, w.stderr.String())
		}
	})
	t.Run("Windows/45 the published address does not flip", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.engine.Assume(hnssim.DistinctVSIDs, false)
		w.members = append(w.members, "windows_use_single_network", false)
		w.addPod("web-0")
		address, _ := tunnel(w)
		for i := 1; i < 6; i++ {
			w.addPod(fmt.Sprintf("web-%d", i))
			if now, _ := tunnel(w); now != address {
				t.Errorf("published was %s, is %s", address, now)
			}
		}
		if len(w.networkNames()) != 2 {
			t.Errorf("networks %v", w.networkNames())
		}
	})
	t.Run("mode l2bridge publishes nothing", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.members = append(w.members, "mode", "")
		w.addPod("web-0")
		if address, mac := tunnel(w); address+mac != "" {
			t.Errorf("published is %s, %s", address, mac)
		}
	})
}
