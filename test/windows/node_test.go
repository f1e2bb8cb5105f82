//go:build wine && linux

package windows

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"calico-cni/test/windows/wine"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
	"calico-cni/windows/hnssim/loopback"
)

// callTime bounds one call on a busy machine.
const callTime = 2 * time.Minute

// node is a simulated host with the pair's executables on it.
type node struct {
	*testing.T
	engine *hnssim.Engine
	server *loopback.Server
	wine   *wine.Host
	// conf is the network configuration.
	conf  map[string]any
	netns map[string]string
	// folder is that of the plugins, if it is not C:\k\cni.
	folder string
	// trace is set for calls of which the processes that they create are told.
	trace bool
	// life ends when the process of a call is to be killed; without one it is
	// never.
	life context.Context
}

// newNode is a fresh simulated host on a machine with Windows, which the plugins
// have forgotten.
func newNode(t *testing.T, machine *wine.Host, build int) *node {
	t.Helper()
	if err := os.RemoveAll(machine.Path("CalicoWindows")); err != nil {
		t.Fatal(err)
	}
	n := &node{wine: machine, T: t, engine: hnssim.New(), netns: map[string]string{}, conf: map[string]any{
		"cniVersion": "1.1.0", "name": "Calico", "type": "calico", "mode": "vxlan", "nodename": "win-1",
		"windows_use_single_network": true, "embedded_file": machine.NewFile(t), "ipam": map[string]any{"type": "calico-ipam"},
		"pools": []any{map[string]any{"name": "pods", "cidr": "10.48.0.0/16", "blockSize": 26, "natOutgoing": true}},
	}}
	n.engine.FollowRealTime()
	n.engine.Change(func(p *hnssim.Profile) { p.Build = build })
	var err error
	if n.server, err = loopback.Serve(t.Context(), n.engine); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.server.Close(); err != nil {
			t.Error(err)
		}
		if findings := n.engine.Findings(); len(findings) > 0 {
			t.Errorf("the simulator found mistakes: %v", findings)
		}
	})
	return n
}

// sandbox is the namespace of a container, which the runtime makes.
func (n *node) sandbox(container string) string {
	n.Helper()
	if n.netns[container] == "" {
		made, err := n.engine.Service().CreateNamespace(n.Context(), hns.Namespace{Type: "Host", SchemaVersion: hns.Schema2()})
		if err != nil {
			n.Fatal(err)
		}
		n.netns[container] = made.ID
	}
	return n.netns[container]
}

// call executes calico.exe for a container, with members of the configuration
// replaced.
func (n *node) call(verb, container string, members map[string]any) wine.Result {
	n.Helper()
	conf := maps.Clone(n.conf)
	maps.Copy(conf, members)
	stdin, err := json.Marshal(conf)
	if err != nil {
		n.Fatal(err)
	}
	life := n.life
	if life == nil {
		life = n.Context()
	}
	ctx, cancel := context.WithTimeout(life, callTime)
	defer cancel()
	return n.wine.Run(ctx, n, wine.Call{Plugin: "calico", Folder: n.folder, Trace: n.trace, Port: n.server.Port(), Stdin: string(stdin), Environment: map[string]string{
		"CNI_COMMAND": verb, "CNI_CONTAINERID": container, "CNI_NETNS": n.sandbox(container), "CNI_IFNAME": "eth0",
		"CNI_ARGS": "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + container,
	}})
}

// result is ADD's, as far as it is looked at.
type result struct {
	Interfaces []struct{ Name, MAC, Sandbox string }
	IPs        []struct {
		Address   string
		Interface int
	}
}

func (n *node) add(container string) (out result) {
	n.Helper()
	got := n.call("ADD", container, nil)
	if got.Exit != 0 {
		n.Fatalf("ADD: exit %d\n%s\n%s", got.Exit, got.Stdout, got.Stderr)
	}
	if err := json.Unmarshal([]byte(got.Stdout), &out); err != nil {
		n.Fatalf("%v: %s", err, got.Stdout)
	}
	return out
}

// silent runs a verb that prints nothing on success.
func (n *node) silent(verb, container string, members map[string]any) {
	n.Helper()
	if got := n.call(verb, container, members); got.Exit != 0 || got.Stdout != "" {
		n.Fatalf("%s: exit %d\n%s\n%s", verb, got.Exit, got.Stdout, got.Stderr)
	}
}

func (n *node) endpoints() []string {
	n.Helper()
	found, err := n.engine.Service().Endpoints(n.Context())
	if err != nil {
		n.Fatal(err)
	}
	var names []string
	for _, endpoint := range found {
		names = append(names, endpoint.Name)
	}
	slices.Sort(names)
	return names
}

// files puts files below a folder of the node.
func (n *node) files(folder string, files map[string]string) {
	n.Helper()
	path := n.wine.Path(onDrive(folder))
	if err := os.MkdirAll(path, 0o755); err != nil {
		n.Fatal(err)
	}
	for name, body := range files {
		if err := os.WriteFile(path+"/"+name, []byte(body), 0o755); err != nil {
			n.Fatal(err)
		}
	}
}
