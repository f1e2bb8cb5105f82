//go:build wine && kubernetes && linux

package windows

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"calico-cni/test/kubetest"
	"calico-cni/test/windows/wine"
)

// image is where a HostProcess container finds what is its own, as containerd
// 1.7 has it.
const image = `C:\hpc`

// cluster is an API server with what docs/install.md says, and the node win-1.
type cluster struct {
	*kubetest.Cluster
	t *testing.T
}

const crds = "/apis/crd.projectcalico.org/v1/"

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{kubetest.Start(t, "deploy/crds-v1.yaml", "deploy/rbac.yaml", "deploy/installer-rbac.yaml",
		"deploy/configmap.yaml", "deploy/windows/daemonset.yaml"), t}
	custom := func(plural, kind string, spec map[string]any) {
		c.create(crds+plural, map[string]any{"apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": map[string]any{"name": "default"}, "spec": spec})
	}
	custom("clusterinformations", "ClusterInformation", map[string]any{"datastoreReady": true})
	custom("ipamconfigs", "IPAMConfig", map[string]any{"strictAffinity": true, "autoAllocateBlocks": true})
	c.create(crds+"ippools", c.documentedPool())
	c.create("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": "shop"}})
	c.create("/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": "win-1", "labels": map[string]any{"kubernetes.io/os": "windows"}}})
	return c
}

func (c *cluster) create(path string, object map[string]any) { c.Admin().Do(c.t, "POST", path, object) }

// documentedPool is the one of docs/windows.md.
func (c *cluster) documentedPool() map[string]any {
	c.t.Helper()
	text, err := os.ReadFile("../../docs/windows.md")
	if err != nil {
		c.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n```yaml\n")
	body, _, _ := strings.Cut(rest, "\n```")
	var pool map[string]any
	if err := yaml.Unmarshal([]byte(body), &pool); err != nil || pool["kind"] != "IPPool" {
		c.t.Fatalf("%v: %s", err, body)
	}
	return pool
}

func (c *cluster) pod(name string) {
	c.create("/api/v1/namespaces/shop/pods", map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{
		"nodeName": "win-1", "containers": []any{map[string]any{"name": "web", "image": "none"}},
	}})
}

// container is that of the DaemonSet, as the API server has it.
type container struct {
	Command []string
	Env     []struct {
		Name, Value string
		ValueFrom   struct{ FieldRef struct{ FieldPath string } }
	}
	VolumeMounts []struct{ Name, MountPath string }
}

func (c *cluster) container() container {
	c.t.Helper()
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					HostNetwork     bool
					NodeSelector    map[string]string
					SecurityContext struct {
						WindowsOptions struct{ HostProcess bool }
					}
					Containers []container
				}
			}
		}
	}
	object, err := json.Marshal(c.Admin().Do(c.t, "GET", "/apis/apps/v1/namespaces/kube-system/daemonsets/calico-cni-windows", nil))
	if err == nil {
		err = json.Unmarshal(object, &set)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	if !pod.HostNetwork || !pod.SecurityContext.WindowsOptions.HostProcess || pod.NodeSelector["kubernetes.io/os"] != "windows" || len(pod.Containers) != 1 {
		c.t.Errorf("the pod is %+v", pod)
	}
	return pod.Containers[0]
}

// runDaemonSet runs the container as kubelet and containerd would: with the
// image, the ConfigMap and the pod's credentials where it finds its own files.
func (n *node) runDaemonSet(c *cluster) wine.Result {
	n.Helper()
	of := c.container()
	executables := map[string]string{}
	for _, name := range []string{"calico.exe", "calico-ipam.exe"} {
		body, err := os.ReadFile("../../dist/windows-amd64/" + name)
		if err != nil {
			n.Fatal(err)
		}
		executables[name] = string(body)
	}
	n.files(image+`\opt\cni\bin`, executables)
	template, _ := c.Admin().Do(n, "GET", "/api/v1/namespaces/kube-system/configmaps/calico-cni", nil)["data"].(map[string]any)
	n.files(image+strings.ReplaceAll(of.VolumeMounts[0].MountPath, "/", `\`), map[string]string{"cni.conf.template": fmt.Sprint(template["cni.conf.template"])})
	authority, err := os.ReadFile(c.CAFile)
	if err != nil {
		n.Fatal(err)
	}
	n.files(image+`\var\run\secrets\kubernetes.io\serviceaccount`, map[string]string{
		"ca.crt": string(authority), "namespace": "kube-system", "token": c.AccountToken(n, "kube-system", "calico-cni-installer"),
	})
	for _, folder := range []string{containerd.bin, containerd.conf} {
		n.files(folder, nil)
	}
	server := netip.MustParseAddrPort(strings.TrimPrefix(c.URL, "https://"))
	environment := map[string]string{
		"CONTAINER_SANDBOX_MOUNT_POINT": image, "SLEEP": "false",
		"KUBERNETES_SERVICE_HOST": server.Addr().String(), "KUBERNETES_SERVICE_PORT": fmt.Sprint(server.Port()),
	}
	for _, variable := range of.Env {
		if variable.ValueFrom.FieldRef.FieldPath == "spec.nodeName" {
			variable.Value = "win-1"
		}
		environment[variable.Name] = variable.Value
	}
	folder, ok := strings.CutSuffix(strings.ReplaceAll(of.Command[0], "%CONTAINER_SANDBOX_MOUNT_POINT%", image), `\calico.exe`)
	if !ok {
		n.Fatalf("the command is %v", of.Command)
	}
	ctx, cancel := context.WithTimeout(n.Context(), callTime)
	defer cancel()
	return n.wine.Run(ctx, n, wine.Call{Plugin: "calico", Folder: folder, Args: of.Command[1:], Environment: environment, Port: n.server.Port()})
}

// TestKubernetes installs with the DaemonSet of deploy/windows as the API server
// has it, and runs the pair with what was installed and the API server as
// datastore.
func TestKubernetes(t *testing.T) {
	c := newCluster(t)
	n := newNode(t, wine.NewHost(t, build), build)
	n.files(`C:\var\run\calico`, map[string]string{"nodename": "win-1\r\n"})
	if got := n.runDaemonSet(c); got.Exit != 0 {
		t.Fatalf("the installer: exit %d\n%s", got.Exit, got.Stderr)
	}
	n.conf, n.folder = n.rendered(containerd), containerd.bin
	for i := range 3 {
		c.pod(fmt.Sprintf("web-%d", i))
	}
	t.Run("an account that may not write nodes", func(t *testing.T) {
		if got := n.call("ADD", "web-0", nil); got.Exit != 0 || !strings.Contains(got.Stderr, "rights of the node agent") {
			t.Errorf("ADD: exit %d\n%s\n%s", got.Exit, got.Stdout, got.Stderr)
		}
	})
	if err := c.Apply("deploy/windows/rbac.yaml"); err != nil {
		t.Fatal(err)
	}
	n.T = t
	first := netip.MustParsePrefix(n.add("web-1").IPs[0].Address)
	t.Run("Windows/43 the end of the tunnel", func(t *testing.T) {
		node := c.Admin().Do(t, "GET", "/api/v1/nodes/win-1", nil)
		annotations, _ := node["metadata"].(map[string]any)["annotations"].(map[string]any)
		want := first.Masked().Addr().Next().String()
		if annotations["projectcalico.org/IPv4VXLANTunnelAddr"] != want || annotations["projectcalico.org/VXLANTunnelMACAddr"] != "00:15:5d:ab:cd:ef" {
			t.Errorf("the node has %v, want %s", annotations, want)
		}
	})
	added := n.call("ADD", "web-2", nil)
	var previous map[string]any
	if err := json.Unmarshal([]byte(added.Stdout), &previous); err != nil {
		t.Fatalf("%v: %s", err, added.Stderr)
	}
	n.silent("CHECK", "web-2", map[string]any{"prevResult": previous})
	n.silent("STATUS", "web-2", nil)
	n.silent("GC", "web-2", map[string]any{"cni.dev/valid-attachments": []any{map[string]any{"containerID": "web-2", "ifname": "eth0"}}})
	if got := n.endpoints(); !slices.Equal(got, []string{"Calico_ep", "web-2_Calico"}) {
		t.Errorf("endpoints %v", got)
	}
	n.silent("DEL", "web-2", nil)
	if left, _ := c.Admin().Do(t, "GET", crds+"ipamhandles", nil)["items"].([]any); len(left) > 0 {
		t.Errorf("handles %v are left", left)
	}
}
