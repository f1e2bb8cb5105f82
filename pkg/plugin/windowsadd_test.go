package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

func TestWindowsAdd(t *testing.T) {
	t.Parallel()
	t.Run("result, record and endpoint", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		result := w.addPod("web-0", "dns", map[string]any{"nameservers": []string{"10.96.0.10"}, "search": []string{"svc"}})
		address := result.IPs[0].Address
		if ones, _ := address.Mask.Size(); ones != 29 || *result.IPs[0].Interface != 1 {
			t.Errorf("the address is %s", address.String())
		}
		octets := address.IP.To4()
		wantMAC := fmt.Sprintf("0E-2A-%02x-%02x-%02x-%02x", octets[0], octets[1], octets[2], octets[3])
		if mac := result.Interfaces[1].Mac; mac != wantMAC {
			t.Errorf("the MAC is %s, want %s", mac, wantMAC)
		}
		if !slices.Equal(result.DNS.Nameservers, []string{"10.96.0.10"}) || !slices.Equal(result.DNS.Search, []string{"svc"}) {
			t.Errorf("DNS is %+v", result.DNS)
		}
		for _, endpoint := range w.endpoints() {
			if endpoint.Spec.MAC != strings.ToLower(strings.ReplaceAll(wantMAC, "-", ":")) || endpoint.Spec.IPNetworks[0] != address.IP.String()+"/32" {
				t.Errorf("the record is %+v", endpoint.Spec)
			}
		}
		w.delPod("web-0")
		if left := w.endpointNames(); !slices.Equal(left, []string{"Calico_ep"}) || len(w.endpoints()) > 0 {
			t.Errorf("left are %v", left)
		}
	})
	t.Run("Network/62 Windows/26 runtime DNS with a server replaces all four fields", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		conf := map[string]any{"nameservers": []string{"10.96.0.10"}, "domain": "d", "search": []string{"s"}, "options": []string{"o"}}
		for name, c := range map[string]struct {
			runtime map[string]any
			want    hns.DNS
		}{
			"with":    {map[string]any{"servers": []string{"10.1.1.1"}, "searches": []string{"r"}}, hns.DNS{ServerList: []string{"10.1.1.1"}, Search: []string{"r"}}},
			"without": {map[string]any{"searches": []string{"r"}}, hns.DNS{ServerList: []string{"10.96.0.10"}, Domain: "d", Search: []string{"s"}, Options: []string{"o"}}},
		} {
			result := w.addPod(name, "dns", conf, "runtimeConfig", map[string]any{"dns": c.runtime})
			found, err := w.engine.Service().EndpointsByName(deadline(t), name+"_Calico")
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			got, _ := json.Marshal(found[0].DNS)
			want, _ := json.Marshal(c.want)
			if string(got) != string(want) || !slices.Equal(result.DNS.Nameservers, c.want.ServerList) {
				t.Errorf("%s: the endpoint has %s, the result %+v, want %s", name, got, result.DNS, want)
			}
		}
	})
	t.Run("Windows/13 MAC of L2Bridge is HNS's, in result and record", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.members = append(w.members, "mode", "")
		result := w.addPod("web-0")
		found, err := w.engine.Service().EndpointsByName(deadline(t), "web-0_Calico")
		if err != nil || len(found) != 1 || found[0].MACAddress == "" {
			t.Fatal(found, err)
		}
		if got := result.Interfaces[1].Mac; got != found[0].MACAddress {
			t.Errorf("HNS says %s, the result %s", found[0].MACAddress, got)
		}
		for _, record := range w.endpoints() {
			if want := strings.ToLower(strings.ReplaceAll(found[0].MACAddress, "-", ":")); record.Spec.MAC != want {
				t.Errorf("the record says %s, want %s", record.Spec.MAC, want)
			}
		}
	})
	t.Run("Windows/42 pools are read before the lock, and nothing under it", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if w.engine.Locked() {
				t.Errorf("under the network lock: %s", call)
			}
			return nil
		}})
		w.addPod("web-0")
		w.delPod("web-0")
	})
	t.Run("Windows/28 ACL failure frees the address", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.engine.Inject(hnssim.Fault{Call: "ModifyEndpoint", Code: hns.InvalidPolicy})
		w.refused(w.pod(invocation.Add, "web-0"), cnierr.HNSRefused, "0x803B000D")
	})
	t.Run("Windows/41 a lock held elsewhere frees the address", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		unlock, err := w.engine.Host().Lock(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		w.refused(w.pod(invocation.Add, "web-0", "timeout_seconds", 1), cnierr.LockNotObtained)
	})
	t.Run("Windows/33 another prefix with a pod present frees the address", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.addPod("web-0")
		w.put(datastore.Step{create(model.KindIPPool, "new", &model.IPPool{Metadata: model.Metadata{Name: "new"}, RawCIDR: "10.78.0.0/24", BlockSize: 29,
			IPIPMode: "Never", VXLANMode: "Always"})})
		call := w.pod(invocation.Add, "web-1", "ipam", map[string]any{"type": "calico-ipam", "ipv4_pools": []string{"new"}})
		w.engine.ClearLog()
		w.refused(call, cnierr.DrainNeeded, "web-0_Calico")
		w.untouched()
	})
	t.Run("Windows/39 IPAM/62 the fifth pod on a /29 with one network", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		for i := range 4 {
			w.addPod(fmt.Sprintf("web-%d", i))
		}
		call := w.pod(invocation.Add, "web-4")
		w.engine.ClearLog()
		w.refused(call, cnierr.BlockLimit, "per host block limit")
		if calls := slices.DeleteFunc(w.engine.Operations(), func(o string) bool { return o == "Endpoints" || o == "EndpointsByName" }); len(calls) > 0 {
			t.Errorf("HNS was asked: %v", calls)
		}
		w.untouched()
	})
	t.Run("Windows/38 the fifth pod on a /29 with many networks", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.engine.Assume(hnssim.DistinctVSIDs, false)
		w.members = append(w.members, "windows_use_single_network", false)
		for i := range 5 {
			w.addPod(fmt.Sprintf("web-%d", i))
		}
		if names := w.networkNames(); len(names) != 2 || !strings.HasPrefix(names[0], "Calico-10-77-0-") {
			t.Errorf("networks %v", names)
		}
	})
}

func TestWindowsRequestedAddress(t *testing.T) {
	t.Parallel()
	w := onWindows(t)
	call := w.pod(invocation.Add, "web-0")
	call.Args += ";IP=10.77.0.12"
	result := w.result(w.runAdd(call))
	if got := result.IPs[0].Address.String(); got != "10.77.0.12/29" {
		t.Errorf("the address is %s", got)
	}
	for address, words := range map[string]string{"10.77.0.8": "already assigned", "10.77.0.10": "already assigned", "10.77.0.15": "already assigned"} {
		call := w.pod(invocation.Add, "web-1")
		call.Args += ";IP=" + address
		w.refused(call, cnierr.AddressTaken, words)
	}
	// One network is one block, for requested addresses as well.
	call = w.pod(invocation.Add, "web-1")
	call.Args += ";IP=10.77.0.20"
	w.refused(call, cnierr.BlockLimit, "per host block limit")
}

const oneAddress = `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.77.0.12/32"}]}'; exit 0`

func TestWindowsSingleAddress(t *testing.T) {
	t.Parallel()
	t.Run("Windows/50 /32 within a block of this node", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.install("one", oneAddress)
		block := model.NewBlock(netip.MustParsePrefix("10.77.0.8/29"), "host:"+nodeName, w.now, nil)
		w.put(datastore.Step{datastore.Put(model.BlockKey{CIDR: block.CIDR}, block, datastore.Absent)})
		result := w.addPod("web-0", "ipam", map[string]any{"type": "one"})
		if got := result.IPs[0].Address.String(); got != "10.77.0.12/29" {
			t.Errorf("the address is %s", got)
		}
	})
	t.Run("Windows/50 /32 within no block of this node", func(t *testing.T) {
		t.Parallel()
		w := onWindows(t)
		w.install("one", oneAddress)
		block := model.NewBlock(netip.MustParsePrefix("10.77.0.8/29"), "host:other", w.now, nil)
		w.put(datastore.Step{datastore.Put(model.BlockKey{CIDR: block.CIDR}, block, datastore.Absent)})
		w.refused(w.pod(invocation.Add, "web-0", "ipam", map[string]any{"type": "one"}), cnierr.NotOnWindows, "10.77.0.12", "/32")
	})
}

func TestWindowsCost(t *testing.T) {
	t.Parallel()
	w := onWindows(t)
	w.setPool("pods", func(p *model.IPPool) { p.BlockSize = 26 })
	for i := range 10 {
		w.addPod(fmt.Sprintf("web-%d", i))
	}
	count := func(name string, most, reads int, run func()) {
		t.Helper()
		asked := 0
		w.store.SetHooks(memory.Hooks{Before: func(context.Context, memory.Call) error { asked++; return nil }})
		w.engine.ClearLog()
		run()
		operations := w.engine.Operations()
		if len(operations) > most || slices.Contains(operations, "Endpoints") || slices.Contains(operations, "EndpointsOfNetwork") {
			t.Errorf("%s has %d operations: %v", name, len(operations), operations)
		}
		if asked > reads {
			t.Errorf("%s asks the datastore %d times", name, asked)
		}
	}
	w.sandbox("web-10")
	count("ADD", 8, 4, func() { w.addPod("web-10") })
	count("DEL", 4, 4, func() { w.delPod("web-10") })
}
