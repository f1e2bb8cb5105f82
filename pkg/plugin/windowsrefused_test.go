package plugin

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

func TestWindowsRefusals(t *testing.T) {
	t.Parallel()
	t.Run("Windows/50 an address that Windows reserves", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		// A block claimed without reservation, by another tool.
		block := model.NewBlock(netip.MustParsePrefix("10.77.0.8/29"), "host:"+nodeName, w.now, nil)
		w.put(datastore.Step{
			datastore.Put(model.BlockKey{CIDR: block.CIDR}, block, datastore.Absent),
			datastore.Put(model.AffinityKey{Type: model.AffinityHost, Host: nodeName, CIDR: block.CIDR}, &model.Affinity{State: model.StateConfirmed}, datastore.Absent),
		})
		for range 3 {
			call := w.pod(invocation.Add, "web-0")
			w.engine.ClearLog()
			w.refused(call, cnierr.NotOnWindows, "cannot be a pod's")
			w.untouched()
		}
		// Released addresses go to the end of the queue.
		if got := w.addPod("web-0").IPs[0].Address.String(); got != "10.77.0.11/29" {
			t.Errorf("the address is %s", got)
		}
	})
	t.Run("Windows/51 assign_ipv6", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		calls := 0
		w.store.SetHooks(memory.Hooks{Before: func(context.Context, memory.Call) error { calls++; return nil }})
		_, err := w.runAdd(w.pod(invocation.Add, "web-0", "ipam", map[string]any{"type": "calico-ipam", "assign_ipv6": "true"}))
		wantCode(t, err, cnierr.NotOnWindows, "assign_ipv6")
		if calls > 0 {
			t.Errorf("the datastore was asked %d times", calls)
		}
	})
	t.Run("Windows/51 annotation that asks for IPv6", func(t *testing.T) {
		t.Parallel()
		for key, value := range map[string]string{"ipFamilies": `["IPv4","IPv6"]`, "ipAddrs": `["fd00:77::7"]`} {
			w := onWindows(t)
			w.plantJSON(namespacePath, map[string]any{"metadata": map[string]any{"name": "shop"}})
			w.node.pod(annotations{"cni.projectcalico.org/" + key: value})
			call := w.pod(invocation.Add, "web-0", "policy", map[string]any{"type": "k8s"})
			w.engine.ClearLog()
			w.refused(call, cnierr.NotOnWindows, "IPv4")
			w.untouched()
		}
	})
	t.Run("Windows/51 IPv6 from another IPAM plugin", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.install("six", `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"fd00::7/64"}]}'; echo "$CNI_COMMAND" >>"$(dirname "$0")/called"; exit 0`)
		w.refused(w.pod(invocation.Add, "web-0", "ipam", map[string]any{"type": "six"}), cnierr.NotOnWindows, "fd00::7/64")
		if called, err := os.ReadFile(filepath.Join(w.bin, "called")); err != nil || string(called) != "ADD\nDEL\n" {
			t.Errorf("the IPAM plugin was called %q, %v", called, err)
		}
	})
	for name, change := range map[string]func(*model.IPPool){
		"IPIP":                 func(p *model.IPPool) { p.IPIPMode = "Always" },
		"VXLAN across subnets": func(p *model.IPPool) { p.VXLANMode = "CrossSubnet" },
	} {
		t.Run("Windows/56 pool with "+name, func(t *testing.T) {
			t.Parallel()
			w := onWindows(t)
			w.setPool("pods", change)
			call := w.pod(invocation.Add, "web-0")
			w.engine.ClearLog()
			w.refused(call, cnierr.NotOnWindows, "pool pods")
			w.untouched()
		})
	}
	t.Run("Windows/2 a VNI below 4096 costs no address", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		call := w.pod(invocation.Add, "web-0", "vxlan_vni", 4095)
		w.engine.ClearLog()
		w.refused(call, cnierr.NotOnWindows, "vxlan_vni")
		if len(w.allocated()) > 0 {
			t.Error("a block was claimed")
		}
		w.untouched()
	})
	t.Run("Windows/62 a second interface of a container", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.addPod("web-0")
		allocated, records := w.allocated(), w.endpoints()
		second := w.pod(invocation.Add, "web-0")
		second.IfName = "net1"
		w.engine.ClearLog()
		w.refused(second, cnierr.NotOnWindows, "eth0", "net1")
		w.untouched()
		// The runtime deletes what it could not add.
		second.Verb = invocation.Del
		if err := w.plugin.Del(deadline(t), second); err != nil {
			t.Fatal(err)
		}
		w.untouched()
		if after := w.allocated(); len(after) != len(allocated) {
			t.Errorf("allocated were %v, are %v", allocated, after)
		}
		for name, record := range w.endpoints() {
			if before := records[name]; before == nil || before.Spec.ContainerID != record.Spec.ContainerID || !slices.Equal(before.Spec.IPNetworks, record.Spec.IPNetworks) {
				t.Errorf("the record %s is %+v", name, record.Spec)
			}
		}
		w.delPod("web-0")
		if left := w.endpointNames(); !slices.Equal(left, []string{"Calico_ep"}) {
			t.Errorf("left are %v", left)
		}
	})
	t.Run("Windows/53 dockershim's CNI_NETNS", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		call := w.pod(invocation.Add, "web-0")
		call.Netns = "container:0123"
		w.refused(call, cnierr.InvalidEnvironment, "CNI_NETNS")
		call.Verb = invocation.Del
		if err := w.plugin.Del(deadline(t), call); err != nil {
			t.Errorf("DEL: %v", err)
		}
		call.Netns = ""
		if err := w.plugin.Del(deadline(t), call); err != nil {
			t.Errorf("Windows/46 DEL without CNI_NETNS: %v", err)
		}
	})
}
