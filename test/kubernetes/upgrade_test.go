//go:build kubernetes && linux

package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/upgrade"
	"calico-cni/test/kubetest"
)

// documented returns the blocks of a language in a page of docs/.
func documented(t *testing.T, page, language string) []string {
	t.Helper()
	root, err := kubetest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	// Every second part is a block, and begins with its language.
	for i, part := range strings.Split(string(text), "```") {
		if block, found := strings.CutPrefix(part, language+"\n"); i%2 == 1 && found {
			blocks = append(blocks, block)
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("docs/%s has no block of %s", page, language)
	}
	return blocks
}

const upgradeAccount = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: calico-cni-upgrade, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: calico-cni-upgrade}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: calico-cni-upgrade}
subjects: [{kind: ServiceAccount, name: calico-cni-upgrade, namespace: kube-system}]
`

// oldNode is a node on which host-local has given two addresses to pods, and one
// to a pod that is gone.
type oldNode struct {
	*env
	directory, plugins string
	log                strings.Builder
}

func newOldNode(e *env) *oldNode {
	e.Helper()
	for _, text := range []string{documented(e.T, "upgrade.md", "yaml")[0], upgradeAccount} {
		if err := cluster.ApplyText([]byte(text)); err != nil {
			e.Fatal(err)
		}
	}
	e.token = cluster.AccountToken(e, "kube-system", "calico-cni-upgrade")
	e.shop()
	return &oldNode{env: e}
}

func (n *oldNode) prepare() {
	n.Helper()
	n.wipe()
	dir := n.TempDir()
	n.directory, n.plugins = filepath.Join(dir, "networks", "k8s-pod-network"), filepath.Join(dir, "bin")
	for name, content := range map[string]string{"10.77.3.2": "c1\r\neth0", "10.77.3.3": "gone", "10.77.3.4": "c4", "last_reserved_ip.0": "10.77.3.4", "lock": ""} {
		n.file(filepath.Join(n.directory, name), content)
	}
	for _, plugin := range []string{"calico", "host-local"} {
		n.file(filepath.Join(n.plugins, plugin), "executable")
	}
	n.information(true)
	n.plant("ippools", "IPPool", map[string]any{"name": "pods"}, map[string]any{"cidr": "10.77.0.0/16"})
	cluster.Admin().Do(n, "POST", "/api/v1/nodes", map[string]any{
		"metadata": map[string]any{"name": "worker-b"}, "spec": map[string]any{"podCIDR": "10.77.3.0/24", "podCIDRs": []string{"10.77.3.0/24"}},
	})
	n.pod()
	n.address("web-0", "10.77.3.2")
}

// address gives a pod an address, as kubelet does.
func (n *oldNode) address(pod, address string) {
	n.Helper()
	cluster.Admin().Do(n, "PATCH", podPath+"/"+pod+"/status", map[string]any{"status": map[string]any{
		"phase": "Running", "podIP": address, "podIPs": []any{map[string]any{"ip": address}},
	}})
}

func (n *oldNode) file(path, content string) {
	n.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		n.Fatal(err)
	}
}

func (n *oldNode) once() error {
	n.Helper()
	environment := map[string]string{
		"KUBERNETES_NODE_NAME": "worker-b", "KUBECONFIG": n.kubeconfig(), "CALICO_API_GROUP": string(n.group),
		"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": "http://127.0.0.1:1", // Kubernetes is used all the same
	}
	u, err := upgrade.FromEnvironment(func(name string) string { return environment[name] }, slog.New(slog.NewTextHandler(&n.log, nil)))
	if err != nil {
		n.Fatal(err)
	}
	u.Directory, u.Plugins, u.Settle = n.directory, n.plugins, 0
	return u.Once(n.within(time.Minute))
}

// wantMoved demands that the node is moved completely.
func (n *oldNode) wantMoved() {
	n.Helper()
	answers, err := n.openAt(kubetest.Kubeconfig(n, cluster.URL, cluster.CAFile, kubetest.AdminToken)).Read(n.within(time.Minute), datastore.ListBlocks{Family: model.IPv4})
	if err != nil {
		n.Fatal(err)
	}
	booked := map[string]string{}
	for _, entry := range answers[0].Entries {
		block := entry.Value.(*model.Block)
		for ordinal := range block.Allocations {
			if holder := block.HolderOf(ordinal); holder != nil {
				booked[block.Addr(ordinal).String()] = fmt.Sprint(holder.HandleID, " ", holder.Owner)
			}
		}
	}
	want := map[string]string{
		"10.77.3.1": "ipip-tunnel-addr-worker-b map[node:worker-b type:ipipTunnelAddress]",
		"10.77.3.2": "k8s-pod-network.c1 map[namespace:shop node:worker-b pod:web-0]",
	}
	if !maps.Equal(booked, want) {
		n.Errorf("booked are %v, want %v", booked, want)
	}
	for _, path := range []string{n.directory, filepath.Join(n.plugins, "calico"), filepath.Join(n.plugins, "host-local")} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			n.Errorf("%s is left: %v", path, err)
		}
	}
	if ready := at(n.object(n.path("clusterinformations", "default")), "spec", "datastoreReady"); ready != true {
		n.Errorf("datastoreReady is %v", ready)
	}
	if tunnel := at(n.object("/api/v1/nodes/worker-b"), "metadata", "annotations", "projectcalico.org/IPv4IPIPTunnelAddr"); tunnel != "10.77.3.1" {
		n.Errorf("the node's tunnel is %v", tunnel)
	}
}

// TestUpgrade moves a node with no more rights than docs/upgrade.md gives, and
// lists no pods of other nodes; the pod's DEL then finds its address.
func TestUpgrade(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		n := newOldNode(e)
		n.prepare()
		other := "10.77.3.4"
		cluster.Admin().Do(t, "POST", podPath, map[string]any{"metadata": map[string]any{"name": "elsewhere"}, "spec": map[string]any{
			"nodeName": "worker-c", "containers": []any{map[string]any{"name": "web", "image": "none"}},
		}})
		e.Cleanup(func() { e.removePod("elsewhere") })
		n.address("elsewhere", other)
		if err := n.once(); err != nil {
			t.Fatal(err)
		}
		n.wantMoved()
		for _, exchange := range e.proxy.Exchanges() {
			if strings.HasSuffix(exchange.Path, "/pods") && !strings.Contains(exchange.Query, "fieldSelector=spec.nodeName%3Dworker-b") {
				t.Errorf("%s", exchange)
			}
		}
		e.proxy.Forget()
		if err := n.once(); err != nil || len(e.proxy.Exchanges()) != 0 {
			t.Errorf("again: %v, %d requests", err, len(e.proxy.Exchanges()))
		}
		e.token = cluster.AccountToken(e, "kube-system", "calico-cni-plugin")
		h := newHost(e)
		h.mustRun(h.calico(), h.call(invocation.Del, "c1", h.policy()))
		e.consistent(1) // the tunnel's
	})
}

// TestUpgradeDies: it is killed before or after each of its requests and begun
// again.
func TestUpgradeDies(t *testing.T) {
	for _, done := range []bool{false, true} {
		t.Run(fmt.Sprint("done ", done), func(t *testing.T) {
			n := newOldNode(newEnv(t, model.GroupV1))
			for number := int64(1); !t.Failed(); number++ {
				n.prepare()
				hook, met := dieAtWrite(number, done)
				n.proxy.Hook(hook)
				err := n.once()
				n.proxy.Hook(nil)
				if met.Load() < number {
					if err != nil || number < 8 {
						t.Errorf("not killed at write %d: %v", number, err)
					}
					return
				}
				if err := n.once(); err != nil {
					t.Errorf("killed at write %d and begun again: %v", number, err)
				}
				n.wantMoved()
			}
		})
	}
}

// TestUpgradeNotReady: while a node is being moved, plugins refuse to work.
func TestUpgradeNotReady(t *testing.T) {
	n := newOldNode(newEnv(t, model.GroupV3))
	n.prepare()
	asked := false
	n.proxy.Hook(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/pods") && !asked {
			asked = true
			plugin := &env{T: n.T, group: n.group, proxy: n.proxy, token: cluster.AccountToken(n, "kube-system", "calico-cni-plugin")}
			h := newHost(plugin)
			if _, err := h.run(h.calico(), h.call(invocation.Add, "c9", h.policy())); cnierr.CodeOf(err) != cnierr.TryAgainLater || !strings.Contains(err.Error(), "not ready") {
				t.Errorf("ADD: code %d, %v", cnierr.CodeOf(err), err)
			}
		}
		next.ServeHTTP(w, r)
	})
	if err := n.once(); err != nil || !asked {
		t.Errorf("%v; pods were listed: %v", err, asked)
	}
	n.wantMoved()
}

// TestUpgradeForbidden: the plugins' own account does not suffice, and the
// error says what is missing.
func TestUpgradeForbidden(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.refusals = true
	n := newOldNode(e)
	n.prepare()
	e.token = cluster.AccountToken(e, "kube-system", "calico-cni-plugin")
	err := n.once()
	if datastore.ReasonOf(err) != datastore.Refused || !strings.Contains(fmt.Sprint(err), "nodes/status") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(n.directory, "10.77.3.2")); err != nil {
		t.Error(err)
	}
}
