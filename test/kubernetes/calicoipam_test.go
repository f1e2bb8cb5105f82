//go:build kubernetes && linux

package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/model"
	"calico-cni/pkg/operator"
	"calico-cni/pkg/session"
	"calico-cni/pkg/workload"
	"calico-cni/test/kubetest"
)

// host runs the plugins in this process as the role of deploy/ allows.
type host struct {
	*env
	dir        string
	kubeconfig string
	links      *links
	stderr     bytes.Buffer
}

func newHost(e *env) *host {
	e.Helper()
	dir := e.TempDir()
	h := &host{env: e, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), links: &links{owner: map[string]workload.Attachment{}}}
	kubetest.WriteKubeconfig(e, h.kubeconfig, e.proxy.URL, e.proxy.CAFile, e.token)
	return h
}

func (h *host) environment() session.Environment {
	getenv := func(string) string { return "" }
	return session.Environment{Getenv: getenv, Open: connect.Open(getenv), Stderr: &h.stderr, GOOS: "linux", Now: time.Now}
}

// config is the configuration of a cluster, changed by the members given.
func (h *host) config(members ...any) []byte {
	h.Helper()
	conf := map[string]any{
		"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "calico", "nodename": "worker-b", "nodename_file_optional": true,
		"datastore_type": "kubernetes", "calico_api_group": string(h.group), "kubernetes": map[string]any{"kubeconfig": h.kubeconfig},
		"ipam_lock_file": filepath.Join(h.dir, "run", "ipam.lock"), "ipam": map[string]any{"type": "calico-ipam"},
	}
	for i := 0; i < len(members); i += 2 {
		conf[members[i].(string)] = members[i+1]
	}
	document, err := json.Marshal(conf)
	if err != nil {
		h.Fatal(err)
	}
	return document
}

func (h *host) call(verb invocation.Verb, container string, stdin []byte) *invocation.Call {
	return &invocation.Call{
		Verb: verb, ContainerID: container, Netns: "/ns/" + container, IfName: "eth0", Path: h.dir, Stdin: stdin,
		Args: "IgnoreUnknown=1;K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop",
	}
}

func (h *host) run(plugin invocation.Plugin, call *invocation.Call) (*types100.Result, error) {
	h.Helper()
	var delivered types.Result
	call.Deliver = func(result types.Result) error {
		delivered = result
		return nil
	}
	if err := invocation.Dispatch(h.within(time.Minute), plugin, call); err != nil || delivered == nil {
		return nil, err
	}
	return types100.NewResultFromResult(delivered)
}

// mustRun returns the addresses of ADD's result, or none.
func (h *host) mustRun(plugin invocation.Plugin, call *invocation.Call) []string {
	h.Helper()
	result, err := h.run(plugin, call)
	if err != nil {
		h.Fatalf("%s: %v\n%s", call.Verb, err, h.stderr.String())
	}
	var addresses []string
	if result != nil {
		for _, ip := range result.IPs {
			addresses = append(addresses, ip.Address.String())
		}
	}
	return addresses
}

// operate runs a command of an operator.
func (h *host) operate(args ...string) (exit int, stdout string) {
	h.Helper()
	file := filepath.Join(h.dir, "net.conf")
	if err := os.WriteFile(file, h.config(), 0o600); err != nil {
		h.Fatal(err)
	}
	var out bytes.Buffer
	process := operator.Process{
		Args: append(args, "--config", file), Stdout: &out, Stderr: &h.stderr,
		Open: connect.Inspect(func(string) string { return "" }), Now: time.Now,
	}
	exit = operator.Run(h.within(time.Minute), process)
	return exit, out.String()
}

func (h *host) show(args ...string) string {
	h.Helper()
	exit, shown := h.operate(append([]string{"show"}, args...)...)
	if exit != 0 {
		h.Fatalf("show: exit %d\n%s", exit, h.stderr.String())
	}
	return shown
}

// block is the CIDR of the only block there is.
func (e *env) block() string {
	e.Helper()
	items, _ := e.object(e.path("ipamblocks"))["items"].([]any)
	if len(items) != 1 {
		e.Fatalf("%d blocks", len(items))
	}
	return fmt.Sprint(at(items[0].(map[string]any), "spec", "cidr"))
}

// information makes the cluster ready, or not.
func (e *env) information(ready bool) {
	e.plant("clusterinformations", "ClusterInformation", map[string]any{"name": "default"}, map[string]any{"datastoreReady": ready})
}

// TestCalicoIPAM is the IPAM plugin alone, every verb of it.
func TestCalicoIPAM(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		e.ready("10.77.0.0/16")
		e.information(true)
		e.shop()
		h := newHost(e)
		p := &ipamplugin.Plugin{Environment: h.environment(), NotesDirectory: filepath.Join(h.dir, "notes")}
		h.mustRun(p, h.call(invocation.Status, "", h.config()))
		first := h.mustRun(p, h.call(invocation.Add, "c1", h.config()))
		second := h.mustRun(p, h.call(invocation.Add, "c2", h.config()))
		if len(first) != 1 || !strings.HasPrefix(first[0], "10.77.") || !strings.HasSuffix(first[0], "/26") || slices.Equal(first, second) {
			t.Errorf("addresses %v and %v", first, second)
		}
		e.consistent(2)
		if shown := h.show("--show-blocks"); !strings.Contains(shown, "10.77.0.0/16") || !strings.Contains(shown, strings.TrimSuffix(e.block(), "/26")) {
			t.Errorf("show prints:\n%s", shown)
		}
		previous := map[string]any{
			"cniVersion": "1.1.0", "interfaces": []any{map[string]any{"name": "eth0", "sandbox": "/ns/c1"}},
			"ips": []any{map[string]any{"interface": 0, "address": first[0]}},
		}
		h.mustRun(p, h.call(invocation.Check, "c1", h.config("prevResult", previous)))
		other := h.call(invocation.Check, "c2", h.config("prevResult", previous))
		other.Netns = "/ns/c1"
		if _, err := h.run(p, other); cnierr.CodeOf(err) != cnierr.CheckFailed {
			t.Errorf("CHECK of another container's address: code %d, %v", cnierr.CodeOf(err), err)
		}
		h.mustRun(p, h.call(invocation.Del, "c1", h.config()))
		h.mustRun(p, h.call(invocation.Del, "c1", h.config()))
		e.consistent(1)
		h.mustRun(p, h.call(invocation.GC, "", h.config("cni.dev/valid-attachments", []any{})))
		e.consistent(0)
	})
}

// TestNamespaceSelector: the pools of the pod's namespace are used.
func TestNamespaceSelector(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		e.ready("10.77.0.0/16")
		e.plant("ippools", "IPPool", map[string]any{"name": "a"}, map[string]any{"cidr": "10.70.0.0/24", "namespaceSelector": "team == 'a'"})
		e.shop()
		h := newHost(e)
		p := &ipamplugin.Plugin{Environment: h.environment(), NotesDirectory: filepath.Join(h.dir, "notes")}
		if addresses := h.mustRun(p, h.call(invocation.Add, "c1", h.config())); !strings.HasPrefix(addresses[0], "10.70.0.") {
			t.Errorf("addresses %v", addresses)
		}
		elsewhere := h.call(invocation.Add, "c2", h.config())
		elsewhere.Args = "K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=nowhere"
		if _, err := h.run(p, elsewhere); cnierr.CodeOf(err) != cnierr.TryAgainLater || !strings.Contains(err.Error(), "Namespace nowhere") {
			t.Errorf("code %d, %v", cnierr.CodeOf(err), err)
		}
	})
}

// TestUnlabelledAffinity: a block that an old release claimed is used before a
// new one is claimed, in ADD's first call after the host's start.
func TestUnlabelledAffinity(t *testing.T) {
	for name, asked := range map[string]string{"IPAM/19 any address": "", "IPAM/19 a certain address": ";IP=10.77.3.70"} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, model.GroupV1)
			e.ready("10.77.0.0/16")
			e.shop()
			h := newHost(e)
			p := &ipamplugin.Plugin{Environment: h.environment(), NotesDirectory: filepath.Join(h.dir, "notes")}
			e.plant("blockaffinities", "BlockAffinity", map[string]any{"name": "worker-b-10-77-3-64-26"},
				map[string]any{"state": "confirmed", "node": "worker-b", "type": "host", "cidr": "10.77.3.64/26", "deleted": "false"})
			call := h.call(invocation.Add, "c1", h.config())
			call.Args += asked
			if addresses := h.mustRun(p, call); !strings.HasPrefix(addresses[0], "10.77.3.") {
				t.Errorf("addresses %v, want one of the block 10.77.3.64/26", addresses)
			}
			labels := e.object(e.path("blockaffinities", "worker-b-10-77-3-64-26"))["metadata"].(map[string]any)["labels"]
			if labels == nil {
				t.Error("the affinity has no labels yet")
			}
		})
	}
}
