package plugin

import (
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
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

// oneAddress is an IPAM plugin that returns an address of its file.
