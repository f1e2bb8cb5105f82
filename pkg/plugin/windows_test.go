package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/session"
	"calico-cni/windows"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

// windowsNode is a node with the data plane of Windows on a simulated host.
type windowsNode struct {
	*node
	engine *hnssim.Engine
	// members are those of every configuration.
	members []any
	netns   map[string]string
}

// onWindows is a Windows node with strict affinity and one pool of small blocks.
func onWindows(t *testing.T) *windowsNode {
	t.Helper()
	w := &windowsNode{node: newNode(t), engine: hnssim.New(), netns: map[string]string{}}
	w.members = []any{"name", "Calico", "mode", "vxlan", "windows_use_single_network", true}
	w.put(datastore.Step{
		datastore.Put(model.IPAMConfigKey{}, &model.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true}, datastore.Absent),
	})
	w.setPool("pods", func(p *model.IPPool) {
		p.BlockSize, p.NATOutgoing, p.VXLANMode, p.IPIPMode = 29, true, "Always", "Never"
	})
	w.plugin.GOOS = "windows"
	w.plugin.pause = w.engine.Pause
	w.plugin.Dataplane = func(s *session.Session) dataplane.Dataplane {
		return windows.New(windows.Options{
			Name: s.Conf.Name, Overlay: s.Conf.Mode == "vxlan", MACPrefix: "0E-2A", SingleNetwork: s.Conf.UseSingleNetwork, VNI: s.Conf.VXLANVNI,
			Service: w.engine.Service(), Host: w.engine.Host(), Logger: s.Log, Pause: w.engine.Pause,
		})
	}
	t.Cleanup(func() {
		if findings := w.engine.Findings(); len(findings) > 0 {
			t.Errorf("the simulator found mistakes: %v", findings)
		}
	})
	return w
}

// setPool changes a pool.
func (w *windowsNode) setPool(name string, change func(*model.IPPool)) {
	w.t.Helper()
	key := model.ResourceKey{Kind: model.KindIPPool, Name: name}
	entry := w.entries(datastore.Get{Key: key})[0]
	pool := *entry.Value.(*model.IPPool)
	change(&pool)
	w.put(datastore.Step{datastore.Put(key, &pool, entry.Revision)})
}

// sandbox is the namespace of a container.
func (w *windowsNode) sandbox(container string) string {
	w.t.Helper()
	if w.netns[container] == "" {
		made, err := w.engine.Service().CreateNamespace(deadline(w.t), hns.Namespace{Type: "Host", SchemaVersion: hns.Schema2()})
		if err != nil {
			w.t.Fatal(err)
		}
		w.netns[container] = made.ID
	}
	return w.netns[container]
}

// pod is a call for the pod and the sandbox of this name.
func (w *windowsNode) pod(verb invocation.Verb, name string, members ...any) *invocation.Call {
	w.t.Helper()
	conf := w.config(append(slices.Clone(w.members), members...)...)
	return w.call(verb, conf, func(call *invocation.Call) {
		call.ContainerID, call.Netns = name, w.sandbox(name)
		call.Args = "IgnoreUnknown=1;K8S_POD_NAME=" + name + ";K8S_POD_NAMESPACE=shop"
	})
}

func (w *windowsNode) addPod(name string, members ...any) *types100.Result {
	w.t.Helper()
	call := w.pod(invocation.Add, name, members...)
	result, err := w.runAdd(call)
	return w.result(result, err)
}

func (w *windowsNode) delPod(name string) {
	w.t.Helper()
	if err := w.plugin.Del(deadline(w.t), w.pod(invocation.Del, name)); err != nil {
		w.t.Fatalf("DEL: %v\n%s", err, w.stderr.String())
	}
}

// refused runs an ADD that must fail and leave nothing, neither on the host nor
// in the datastore. Changes of HNS count only if there must be none.
func (w *windowsNode) refused(call *invocation.Call, code cnierr.Code, words ...string) {
	w.t.Helper()
	before, endpoints := w.allocated(), w.podEndpoints()
	_, err := w.runAdd(call)
	wantCode(w.t, err, code, words...)
	// The addresses that the block keeps for Windows are there from now on.
	for address, handle := range w.allocated() {
		if before[address] == "" && handle != model.ReserveHandleID {
			w.t.Errorf("%s is left allocated to %s", address, handle)
		}
	}
	if after := w.podEndpoints(); !slices.Equal(after, endpoints) {
		w.t.Errorf("endpoints %v became %v", endpoints, after)
	}
}

func (w *windowsNode) endpointNames() []string {
	w.t.Helper()
	found, err := w.engine.Service().Endpoints(deadline(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, endpoint := range found {
		names = append(names, endpoint.Name)
	}
	slices.Sort(names)
	return names
}

func (w *windowsNode) podEndpoints() []string {
	return slices.DeleteFunc(w.endpointNames(), func(name string) bool { return strings.HasSuffix(name, "_ep") })
}

func (w *windowsNode) networkNames() []string {
	w.t.Helper()
	found, err := w.engine.Service().Networks(deadline(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, network := range found {
		names = append(names, network.Name)
	}
	slices.Sort(names)
	return names
}

// untouched checks that HNS was not changed since the log was cleared.
func (w *windowsNode) untouched() {
	w.t.Helper()
	for _, c := range w.engine.Changes() {
		w.t.Errorf("HNS was changed: %s %s", c.Name, c.Document)
	}
}

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

// oneAddress is an IPAM plugin that returns an address of its file.
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

func TestWindowsHostLocal(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		ipam       map[string]any
		start, end any
		wrong      bool
	}{
		"pod CIDR":        {map[string]any{"subnet": "usePodCidr"}, "10.244.1.3", "10.244.1.254", false},
		"a range":         {map[string]any{"subnet": "10.1.2.0/25"}, "10.1.2.3", "10.1.2.126", false},
		"host bits":       {map[string]any{"subnet": "10.1.2.77/26"}, "10.1.2.67", "10.1.2.126", false},
		"narrower":        {map[string]any{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.10", "rangeEnd": "10.1.2.20"}, "10.1.2.10", "10.1.2.20", false},
		"too wide":        {map[string]any{"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.1", "rangeEnd": "10.1.2.255"}, "10.1.2.3", "10.1.2.254", false},
		"elsewhere":       {map[string]any{"subnet": "10.1.2.0/24", "rangeStart": "10.9.2.10", "rangeEnd": "10.9.2.20"}, "10.1.2.3", "10.1.2.254", false},
		"no address":      {map[string]any{"subnet": "10.1.2.0/24", "rangeStart": "x"}, nil, nil, true},
		"IPv6 is no care": {map[string]any{"subnet": "fd00::/64"}, nil, nil, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := onWindows(t)
			w.members = append(w.members, "mode", "")
			w.install("host-local", reported)
			key := model.ResourceKey{Kind: model.KindNode, Name: nodeName}
			entry := w.entries(datastore.Get{Key: key})[0]
			node := &model.Node{}
			if err := json.Unmarshal([]byte(`{"metadata":{"name":"`+nodeName+`"},"status":{"podCIDRs":["10.244.1.0/24"]}}`), node); err != nil {
				t.Fatal(err)
			}
			w.put(datastore.Step{datastore.Put(key, node, entry.Revision)})
			c.ipam["type"] = "host-local"
			_, err := w.runAdd(w.pod(invocation.Add, "web-0", "ipam", c.ipam))
			if c.wrong {
				wantCode(t, err, cnierr.InvalidConfiguration, "rangeStart")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			body, err := os.ReadFile(filepath.Join(w.bin, "stdin.ADD"))
			if err != nil {
				t.Fatal(err)
			}
			var sent struct{ IPAM map[string]any }
			if err := json.Unmarshal(body, &sent); err != nil || sent.IPAM["rangeStart"] != c.start || sent.IPAM["rangeEnd"] != c.end {
				t.Errorf("host-local got %v, %v", sent.IPAM, errors.Join(err))
			}
		})
	}
}
