//go:build kubernetes && linux

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"calico-cni/test/cluster/node"
)

const (
	system     = "/api/v1/namespaces/kube-system/"
	daemonSet  = "/apis/apps/v1/namespaces/kube-system/daemonsets/calico-cni"
	template   = "cni.conf.template"
	installers = system + "pods"
)

// edited is the template as docs/install.md and docs/configuration.md tell to
// change it for nodes without Calico's node agent, and pods of both families.
func edited(text string) (string, error) {
	for old, replacement := range map[string]string{
		`"nodename_file_optional": false`: `"nodename_file_optional": true`,
		`"type": "calico-ipam"`:           `"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"`,
	} {
		if !strings.Contains(text, old) {
			return "", fmt.Errorf("the template has no %s", old)
		}
		text = strings.Replace(text, old, replacement, 1)
	}
	return text, nil
}

// prepareInstall changes what was applied as an administrator does: the
// template, and the address of an API server that kube-proxy does not serve.
func (l *lab) prepareInstall() error {
	admin := l.Admin()
	configMap, err := get(admin, system+"configmaps/calico-cni")
	if err != nil {
		return err
	}
	text, err := edited(fmt.Sprint(at(configMap, "data", template)))
	if err != nil {
		return err
	}
	if _, err := admin.Try(http.MethodPatch, system+"configmaps/calico-cni", object{"data": object{template: text}}); err != nil {
		return err
	}
	set, err := get(admin, daemonSet)
	if err != nil {
		return err
	}
	server, err := url.Parse(l.URL)
	if err != nil {
		return err
	}
	containers := at(set, "spec", "template", "spec", "containers").([]any)
	environment := containers[0].(object)["env"].([]any)
	containers[0].(object)["env"] = append(environment,
		object{"name": "KUBERNETES_SERVICE_HOST", "value": server.Hostname()}, object{"name": "KUBERNETES_SERVICE_PORT", "value": server.Port()})
	_, err = admin.Try(http.MethodPatch, daemonSet, object{"spec": object{"template": object{"spec": object{"containers": containers}}}})
	return err
}

// authority gives pods of a namespace what they know the API server by, and
// an account, as the controller manager does.
func (l *lab) authority(namespace string) error {
	text, err := os.ReadFile(l.CAFile)
	if err != nil {
		return err
	}
	folder := "/api/v1/namespaces/" + namespace
	if err := post(l.Admin(), folder+"/configmaps", object{"metadata": object{"name": "kube-root-ca.crt"}, "data": object{"ca.crt": string(text)}}); err != nil {
		return err
	}
	return post(l.Admin(), folder+"/serviceaccounts", object{"metadata": object{"name": "default"}})
}

// runInstallers makes the pods of the DaemonSet, as its controller does.
func (s *scene) runInstallers() {
	s.Helper()
	set := shared.Admin().Do(s, http.MethodGet, daemonSet, nil)
	for _, n := range s.nodes {
		pod := object{
			"apiVersion": "v1", "kind": "Pod", "spec": at(set, "spec", "template", "spec"),
			"metadata": object{"name": "calico-cni-" + n.Name, "labels": at(set, "spec", "template", "metadata", "labels")},
		}
		pod["spec"].(object)["nodeName"] = n.Name
		s.object(installers, pod)
	}
}

// installByHand installs on a node without a kubelet, as docs/install.md tells.
func (s *scene) installByHand(n *node.Node) {
	s.Helper()
	plugins, err := filepath.Glob(filepath.Join(shared.built.image, "opt/cni/bin/*"))
	if err != nil {
		s.Fatal(err)
	}
	n.Install(s, plugins...)
	root, err := os.ReadFile(filepath.Join(shared.built.root, template))
	if err != nil {
		s.Fatal(err)
	}
	text, err := edited(string(root))
	if err != nil {
		s.Fatal(err)
	}
	n.Write(s, "/etc/"+template, text, 0o644)
	token := shared.AccountToken(s, "kube-system", "calico-cni-plugin")
	n.Write(s, "/etc/cni/net.d/calico-kubeconfig", shared.InlineKubeconfig(s, token), 0o600)
	if _, err := n.Run("env", "SLEEP=false", "CNI_NETWORK_CONFIG_FILE=/etc/"+template, "KUBERNETES_NODE_NAME="+n.Name,
		"/opt/cni/bin/calico", "install", "-from", "/opt/cni/bin", "-bin-dir", "/opt/cni/bin", "-conf-dir", "/etc/cni/net.d"); err != nil {
		s.Fatal(err)
	}
}

// TestInstall: what the DaemonSet's pods put on nodes makes them ready, and
// containerd 1.6 takes the list, which offers 1.1.0, as one of 1.0.0.
func TestInstall(t *testing.T) {
	s := newScene(t)
	for i, n := range s.nodes {
		s.startKubelet(i)
		s.missesNetwork(n)
	}
	s.runInstallers()
	s.nodesReady()
	for i, n := range s.nodes {
		list, err := os.ReadFile(n.File("/etc/cni/net.d/10-calico.conflist"))
		if err != nil {
			t.Fatal(err)
		}
		var versions struct{ CNIVersions []string }
		if err := json.Unmarshal(list, &versions); err != nil || !slices.Equal(versions.CNIVersions, []string{"1.0.0", "1.1.0"}) {
			t.Errorf("%s: the list offers %v: %v", n.Name, versions.CNIVersions, err)
		}
		if version := s.loaded(i, "k8s-pod-network"); version != "1.0.0" {
			t.Errorf("%s: containerd has loaded the list as %q", n.Name, version)
		}
		for path, mode := range map[string]os.FileMode{
			"/etc/cni/net.d/10-calico.conflist": 0o600, "/etc/cni/net.d/calico-kubeconfig": 0o600,
			"/opt/cni/bin/calico": 0o755, "/opt/cni/bin/calico-ipam": 0o755,
		} {
			if status, err := os.Stat(n.File(path)); err != nil || status.Mode() != mode {
				t.Errorf("%s: %s: %v %v", n.Name, path, status, err)
			}
		}
	}
	s.hostPort()
}

// missesNetwork waits until a kubelet says that its node has no network.
func (s *scene) missesNetwork(n *node.Node) {
	s.Helper()
	s.until("waiting for "+n.Name+" to miss its network", func() error {
		answer, err := get(shared.Admin(), "/api/v1/nodes/"+n.Name)
		if err != nil {
			return err
		}
		reason := condition(answer, "Ready")
		if reason == nil || !strings.Contains(reason.Error(), "cni plugin not initialized") {
			return fmt.Errorf("ready: %v", reason)
		}
		return nil
	})
}

// loaded is the version of a network's list that containerd has loaded.
func (s *scene) loaded(i int, network string) string {
	s.Helper()
	_, more, err := s.runtimes[i].Status(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	var status struct {
		Networks []struct {
			Config struct{ Name, CNIVersion string }
		}
	}
	if err := json.Unmarshal([]byte(more["cniconfig"]), &status); err != nil {
		s.Fatal(err)
	}
	for _, found := range status.Networks {
		if found.Config.Name == network {
			return found.Config.CNIVersion
		}
	}
	return ""
}

// hostPort checks that portmap of the same list maps a port of a node to a pod.
func (s *scene) hostPort() {
	s.Helper()
	pod := podOn("web", s.nodes[0].Name)
	pod["spec"].(object)["containers"].([]object)[0]["ports"] = []object{{"containerPort": 80, "hostPort": 8080}}
	s.object(pods, pod)
	s.createPod("client", s.nodes[1].Name)
	s.running("web", "client")
	s.route()
	s.until("waiting for the node's port", func() error {
		return s.asks(s.runtimes[1], "client", "web", net.JoinHostPort(s.nodes[0].Address, "8080"))
	})
	s.delete("web", "client")
	s.holdsSoon()
	if rules, err := s.nodes[0].Run("iptables-save", "-t", "nat"); err != nil || strings.Contains(rules, "8080") {
		s.Errorf("%v, rules that are left:\n%s", err, rules)
	}
}
