//go:build wine && linux

package windows

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"calico-cni/test/windows/wine"
)

// layout is where a node has its plugins, as Windows writes it.
type layout struct{ bin, conf string }

// The layouts of deploy/windows/install.ps1.
var (
	containerd = layout{`C:\Program Files\containerd\cni\bin`, `C:\Program Files\containerd\cni\conf`}
	folderK    = layout{`C:\k\cni`, `C:\k\cni\config`}
)

// onDrive is a path on drive C: with slashes, and without the drive.
func onDrive(path string) string {
	return strings.ReplaceAll(strings.TrimPrefix(path, `C:\`), `\`, "/")
}

// edit is what an operator changes in cni.conf.template.
type edit struct{ from, to string }

var (
	manyNetworks = edit{`"windows_use_single_network": true`, `"windows_use_single_network": false`}
	noExclusion  = edit{`"windows_disable_host_subnet_nat_exclusion": false`, `"windows_disable_host_subnet_nat_exclusion": true`}
)

// install runs "calico.exe install" with the template, edited, and returns the
// configuration as a runtime passes it to the plugin.
func (n *node) install(from string, to layout, edits ...edit) map[string]any {
	n.Helper()
	template, err := os.ReadFile("../../cni.conf.template")
	if err != nil {
		n.Fatal(err)
	}
	for _, e := range edits {
		if strings.Count(string(template), e.from) != 1 {
			n.Fatalf("the template says %s not exactly once", e.from)
		}
		template = []byte(strings.Replace(string(template), e.from, e.to, 1))
	}
	for _, folder := range []string{to.bin, to.conf} {
		if err := os.MkdirAll(n.wine.Path(onDrive(folder)), 0o755); err != nil {
			n.Fatal(err)
		}
	}
	if err := os.WriteFile(n.wine.Path("cni.conf.template"), template, 0o644); err != nil {
		n.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.Context(), callTime)
	defer cancel()
	got := n.wine.Run(ctx, n, wine.Call{Plugin: "calico", Folder: from, Port: n.server.Port(),
		Args: []string{"install", "-from", from, "-bin-dir", to.bin, "-conf-dir", to.conf},
		Environment: map[string]string{
			"SLEEP": "false", "CNI_NETWORK_CONFIG_FILE": `C:\cni.conf.template`, "DATASTORE_TYPE": "embedded", "KUBERNETES_NODE_NAME": "win-1",
			"KUBERNETES_SERVICE_CIDRS": "10.96.0.0/12", "KUBERNETES_DNS_SERVERS": "10.96.0.10",
		}})
	if got.Exit != 0 {
		n.Fatalf("calico.exe install: exit %d\n%s", got.Exit, got.Stderr)
	}
	return n.rendered(to)
}

// rendered is what a runtime passes to the plugin of the configuration that was
// installed.
func (n *node) rendered(at layout) map[string]any {
	n.Helper()
	body, err := os.ReadFile(filepath.Join(n.wine.Path(onDrive(at.conf)), "10-calico.conflist"))
	if err != nil {
		n.Fatal(err)
	}
	var list struct {
		Name        string
		CNIVersions []string
		Plugins     []map[string]any
	}
	if err := json.Unmarshal(body, &list); err != nil || len(list.Plugins) != 1 || !slices.Contains(list.CNIVersions, "1.1.0") {
		n.Fatalf("%v: %s", err, body)
	}
	conf := list.Plugins[0]
	conf["name"], conf["cniVersion"] = list.Name, "1.1.0"
	return conf
}

// withoutCluster replaces what needs a cluster.
func (n *node) withoutCluster(conf map[string]any) map[string]any {
	conf["embedded_file"] = n.wine.NewFile(n)
	conf["pools"] = []any{map[string]any{"name": "pods", "cidr": "10.48.0.0/16", "blockSize": 26, "natOutgoing": true}}
	conf["nodename_file_optional"] = true
	delete(conf, "policy")
	delete(conf, "kubernetes")
	return conf
}

// documents are those of the calls of a name.
func (n *node) documents(call string) []string {
	var sent []string
	for _, c := range n.engine.Calls() {
		if c.Name == call {
			sent = append(sent, c.Document)
		}
	}
	return sent
}

// testInstall goes the whole way: an edit of the template, the installation, the
// rendered file, and what HNS gets of an ADD with it.
func testInstall(t *testing.T, machine *wine.Host) {
	const hostSubnet = `"172.20.32.0/19"`
	for _, c := range []struct {
		name            string
		edits           []edit
		single, exclude bool
	}{
		{"as shipped", nil, true, true},
		{"windows_use_single_network", []edit{manyNetworks}, false, true},
		{"windows_disable_host_subnet_nat_exclusion", []edit{noExclusion}, true, false},
		{"both", []edit{manyNetworks, noExclusion}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, machine, build)
			n.conf = n.withoutCluster(n.install(folderK.bin, containerd, c.edits...))
			if n.conf["windows_use_single_network"] != c.single || n.conf["windows_disable_host_subnet_nat_exclusion"] == c.exclude {
				t.Errorf("rendered is %v", n.conf)
			}
			n.folder = containerd.bin
			n.add("web-0")
			network, endpoint := strings.Join(n.documents("CreateNetwork"), "\n"), strings.Join(n.documents("CreateEndpoint"), "\n")
			if strings.Contains(network, `"Name":"Calico"`) != c.single || strings.Contains(network, `"Name":"Calico-10-48-`) == c.single {
				t.Errorf("the network is %s", network)
			}
			if strings.Contains(endpoint, hostSubnet) != c.exclude || !strings.Contains(endpoint, `"10.96.0.0/12"`) ||
				!strings.Contains(endpoint, `"ServerList":["10.96.0.10"]`) {
				t.Errorf("the endpoint is %s", endpoint)
			}
		})
	}
	t.Run(`C:\k`, func(t *testing.T) {
		n := newNode(t, machine, build)
		if err := os.Remove(machine.Path("k/cni/calico.exe")); err != nil {
			t.Fatal(err)
		}
		conf := n.install(containerd.bin, folderK)
		if body, err := json.Marshal(conf); err != nil || !strings.Contains(string(body), `"kubeconfig":"C:\\k\\cni\\config\\calico-kubeconfig"`) {
			t.Errorf("%v: %s", err, body)
		}
		n.conf = n.withoutCluster(conf)
		n.add("web-0")
	})
}
