package plugin

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/windows/hnssim"
)

func TestWindowsOtherVerbs(t *testing.T) {
	t.Parallel()
	t.Run("Windows/58 CHECK", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		previous, err := json.Marshal(w.addPod("web-0"))
		if err != nil {
			t.Fatal(err)
		}
		w.setPool("pods", func(p *model.IPPool) { p.NATOutgoing = false })
		call := w.pod(invocation.Check, "web-0", "vxlan_vni", 5000, "prevResult", json.RawMessage(previous))
		if err := w.plugin.Check(deadline(t), call); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		found, err := w.engine.Service().EndpointsByName(deadline(t), "web-0_Calico")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.engine.Service().DeleteEndpoint(deadline(t), found[0].ID); err != nil {
			t.Fatal(err)
		}
		wantCode(t, w.plugin.Check(deadline(t), call), cnierr.CheckFailed, "web-0_Calico is missing")
	})
	t.Run("Windows/59 GC", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		for _, name := range []string{"web-0", "web-1"} {
			w.addPod(name)
		}
		w.now = w.now.Add(time.Minute)
		call := w.pod(invocation.GC, "web-0", "cni.dev/valid-attachments", []any{map[string]any{"containerID": "web-1", "ifname": "eth0"}})
		if err := w.plugin.GC(deadline(t), call); err != nil {
			t.Fatal(err)
		}
		if left := w.endpointNames(); !slices.Equal(left, []string{"Calico_ep", "web-1_Calico"}) {
			t.Errorf("endpoints %v", left)
		}
		if len(w.endpoints()) != 1 || len(w.entries(datastore.ListHandles{})) != 1 {
			t.Errorf("records %v, handles %v", w.endpoints(), w.entries(datastore.ListHandles{}))
		}
		for address, handle := range w.allocated() {
			if handle != "Calico.web-1" && handle != model.ReserveHandleID {
				t.Errorf("%s is still %s's", address, handle)
			}
		}
	})
	t.Run("Windows/60 STATUS", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		status := func() error { return w.plugin.Status(deadline(t), w.pod(invocation.Status, "web-0")) }
		if err := status(); err != nil {
			t.Errorf("fresh node: %v", err)
		}
		w.addPod("web-0")
		if err := status(); err != nil {
			t.Errorf("with a network: %v", err)
		}
		w.engine.Wipe()
		wantCode(t, status(), cnierr.LimitedConnectivity, "no network")
		w.engine.Inject(hnssim.Fault{Code: 0x800706BA})
		wantCode(t, status(), cnierr.LimitedConnectivity, "HNS does not answer")
		w.engine.ClearFaults()
		delete(w.netns, "web-0")
		w.delPod("web-0")
		if err := status(); err != nil {
			t.Errorf("after the last DEL: %v", err)
		}
	})
}
