//go:build kubernetes && linux

package kubernetes

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"calico-cni/pkg/model"
	"calico-cni/test/netns"
)

// document is docs/install.md and what is needed to do what it says: a
// check-out, a cluster, and a node.
type document struct {
	*testing.T
	text     string
	checkout string
	// tools has kubectl and cnitool.
	tools   string
	node    *installerNode
	network *netns.Namespace
}

func newDocument(t *testing.T) *document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{T: t, text: string(text), checkout: t.TempDir(), tools: t.TempDir(), network: netns.New(t)}
	d.bash(repository, "tar --exclude=./.git --exclude=./.cache --exclude=./bin --exclude=./dist -cf - . | tar -C "+d.checkout+" -xf -\n"+
		"go build -o "+d.tools+"/ ./test/kubernetes/kubectl github.com/containernetworking/cni/cnitool")
	d.node = emptyNode(t, filepath.Join(d.checkout, "image"))
	for _, folder := range []string{"etc", "opt", "run/netns", "var/lib", "var/log"} {
		if err := os.MkdirAll(filepath.Join(d.node.host, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The node reaches the API server at the address that everybody does.
	d.bash(repository, "nsenter --net="+d.network.Path()+" bash -c 'ip link set lo up; sysctl -qw net.ipv4.ip_forward=1'")
	var listener net.Listener
	d.network.Do(t, func() { listener, err = net.Listen("tcp", strings.TrimPrefix(cluster.URL, "https://")) })
	if err != nil {
		t.Fatal(err)
	}
	relayFrom(t, listener)
	return d
}

func (d *document) bash(directory, script string) string {
	d.Helper()
	command := exec.CommandContext(d.Context(), "bash", "-c", "set -euo pipefail\n"+script)
	command.Dir = directory
	command.Env = append(os.Environ(), "KUBECTL_SERVER="+cluster.URL, "KUBECTL_TOKEN=admin-token", "KUBECTL_CA="+cluster.CAFile,
		"PATH="+d.tools+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	if err != nil {
		d.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// onNode runs a script where the host's folders are the node's.
func (d *document) onNode(script string) string {
	d.Helper()
	at := d.node.host
	return d.bash(d.checkout, "nsenter --net="+d.network.Path()+" unshare --mount --propagation private bash -c '\nset -euo pipefail\n"+
		"mount --rbind /run/netns "+at+"/run/netns\n"+
		"for folder in run var/lib var/log opt etc; do mount --rbind "+at+"/$folder /$folder; done\n"+
		"export NETCONFPATH=/etc/cni/net.d\n"+script+"'")
}

// block is a fenced block of a section.
type block struct {
	language, script string
	onNode           bool
}

// blocks are a section's.
func (d *document) blocks(section string) []block {
	d.Helper()
	_, body, found := strings.Cut(d.text, "\n## "+section+"\n")
	if !found {
		d.Fatalf("the document has no section %q", section)
	}
	body, _, _ = strings.Cut(body, "\n## ")
	var out []block
	for i, part := range strings.Split("\n"+body, "\n```") {
		if i%2 == 0 {
			continue
		}
		before := strings.Split("\n"+body, "\n```")[i-1]
		language, script, _ := strings.Cut(part, "\n")
		out = append(out, block{language, script, strings.Contains(strings.ToLower(before), "*on the node*")})
	}
	return out
}

// do runs the commands of a section that are for the cluster, or the node.
func (d *document) do(section string, onNode bool) string {
	d.Helper()
	said := ""
	for _, b := range d.blocks(section) {
		switch {
		case b.onNode != onNode || b.language != "sh":
		case onNode:
			said += d.onNode(b.script)
		default:
			said += d.bash(d.checkout, b.script)
		}
	}
	return said
}

// install lets the DaemonSet's pod run until it has installed.
func (d *document) install() {
	d.Helper()
	d.node.look()
	_ = os.Remove(filepath.Join(d.node.host, "etc/cni/net.d/10-calico.conflist")) // of the run before, if any
	command, said := d.node.start()
	d.node.awaitConfiguration(said)
	end(d.T, command, said)
}

// add puts a pod of the document on the network and returns its address.
func (d *document) add(name string) netip.Addr {
	d.Helper()
	cluster.Admin().Do(d, "POST", "/api/v1/namespaces/store/pods/"+name+"/binding", map[string]any{
		"metadata": map[string]any{"name": name}, "target": map[string]any{"kind": "Node", "name": "worker-b"},
	})
	sandbox := netns.New(d)
	said := d.onNode("CNI_ARGS=\"K8S_POD_NAMESPACE=store;K8S_POD_NAME=" + name + "\" CNI_PATH=/opt/cni/bin cnitool add k8s-pod-network " + sandbox.Path() + " 2>/dev/null")
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal([]byte(said), &result); err != nil || len(result.IPs) != 1 {
		d.Fatalf("%v: %s", err, said)
	}
	return result.IPs[0].Address.Addr()
}

// TestInstallDocument does what docs/install.md says, from the image to the
// removal; only docker is not there.
func TestInstallDocument(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	d := newDocument(t)
	cluster.Admin().Do(t, "POST", "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": "worker-b"}})
	for _, b := range d.blocks("Build the image") {
		if b.language != "sh" && !strings.HasPrefix(b.script, "docker build -t ") {
			t.Errorf("no test runs %s", b.script)
		}
	}
	d.do("Build the image", false)
	d.do("Prepare a cluster without Calico", false)
	d.do("Install", false)
	d.install()
	for _, part := range []string{"calico-ipam", "10-calico.conflist", "calico-kubeconfig"} {
		if said := d.do("Install", true); !strings.Contains(said, part) {
			t.Errorf("the node's folders do not hold %s:\n%s", part, said)
		}
	}
	d.levels()
	d.pools(e)
	if said := d.do("Read the log", true); !strings.Contains(said, "at-a-fixed-address") && !strings.Contains(said, "10.79.0.9") {
		t.Errorf("the log does not tell of the last pod:\n%s", said)
	}
	d.do("The template", false)
	d.do("A node without the DaemonSet", true)
	d.windowsNodes()
	d.do("Remove", false)
	d.do("Remove", true)
	if left := d.onNode("ls /etc/cni/net.d; ls /opt/cni/bin"); strings.Contains(left, "calico") {
		t.Errorf("left on the node:\n%s", left)
	}
}

// windowsNodes installs what runs on Windows nodes.
func (d *document) windowsNodes() {
	d.Helper()
	for _, b := range d.blocks("Windows nodes") {
		if b.language == "" && !strings.HasPrefix(b.script, "docker buildx build ") {
			d.Errorf("no test runs %s", b.script)
		}
	}
	d.do("Windows nodes", false)
	object, err := json.Marshal(cluster.Admin().Do(d, "GET", "/apis/apps/v1/namespaces/kube-system/daemonsets/calico-cni-windows", nil))
	for _, part := range []string{`"value":"10.97.0.0/16"`, `"value":"10.97.0.10"`, `"image":"registry.example.com/calico-cni-windows:1.0"`} {
		if err != nil || !strings.Contains(string(object), part) {
			d.Errorf("%v: the DaemonSet does not hold %s:\n%s", err, part, object)
		}
	}
	if said := d.bash(d.checkout, "cd image-windows/opt/cni/bin && echo *"); said != "calico-ipam.exe calico.exe host-local.exe\n" {
		d.Errorf("the image holds %s", said)
	}
}

// levels turns the log up and down.
func (d *document) levels() {
	d.Helper()
	commands := 0
	for _, b := range d.blocks("Read the log") {
		if b.onNode {
			continue
		}
		for line := range strings.Lines(b.script) {
			commands++
			d.bash(d.checkout, line)
			d.install()
			_, level, _ := strings.Cut(strings.TrimSpace(line), "LOG_LEVEL=")
			if text := d.onNode("cat /etc/cni/net.d/10-calico.conflist"); level == "" || !strings.Contains(text, `"log_level": "`+level+`"`) {
				d.Errorf("after %s the configuration is\n%s", line, text)
			}
		}
	}
	if commands != 2 {
		d.Errorf("the document has %d commands for the level", commands)
	}
}

// pools makes the document's pools and pods and looks where these get their
// addresses from.
func (d *document) pools(e *env) {
	d.Helper()
	d.do("Pools for the cluster, a namespace, a pod", false)
	d.do("Fixed addresses", false)
	for pod, pool := range map[string]string{
		"from-the-namespace": "10.78.0.0/24", "from-its-own": "10.77.0.0/16", "at-a-fixed-address": "10.79.0.9/32",
	} {
		e.Cleanup(func() {
			_, _ = cluster.Admin().Try("DELETE", "/api/v1/namespaces/store/pods/"+pod+"?gracePeriodSeconds=0", nil) // of this test only
		})
		if address := d.add(pod); !netip.MustParsePrefix(pool).Contains(address) {
			d.Errorf("pod %s got %v, want one of %s", pod, address, pool)
		}
	}
}
