//go:build kubernetes && linux

package kubernetes

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

const (
	kubeVirtDefinitions = "test/kubernetes/testdata/kubevirt.yaml"
	kubeVirtPath        = "/apis/kubevirt.io/v1/namespaces/shop/"
	machineHandle       = "k8s-pod-network.vmi.shop.vm1"
	launcher            = "virt-launcher-vm1-aaaaa"
	target              = "virt-launcher-vm1-bbbbb"
	successor           = "virt-launcher-vm1-ccccc"
	// kept keeps KubeVirt's objects while they are being deleted, as its
	// controller does until a pod is gone.
	kept = "kubevirt.io/foregroundDeleteVirtualMachine"
)

// kubeVirt is a cluster with KubeVirt's kinds, in which nothing runs yet.
func kubeVirt(e *env) *host {
	e.Helper()
	if err := cluster.Apply(kubeVirtDefinitions); err != nil {
		e.Fatal(err)
	}
	h, _ := newCluster(e)
	e.Cleanup(e.noMachine)
	return h
}

// noMachine removes the machine vm1 and its pods.
func (e *env) noMachine() {
	e.Helper()
	for _, plural := range []string{"virtualmachineinstances", "virtualmachines", "virtualmachineinstancemigrations"} {
		items, _ := e.object(kubeVirtPath + plural)["items"].([]any)
		for _, item := range items {
			path := kubeVirtPath + plural + "/" + fmt.Sprint(at(item.(map[string]any), "metadata", "name"))
			cluster.Admin().Do(e, "PATCH", path, map[string]any{"metadata": map[string]any{"finalizers": nil}})
			_, _ = cluster.Admin().Try("DELETE", path, nil) // that may have been the end of it
		}
	}
	for _, pod := range []string{launcher, target, successor} {
		e.removePod(pod)
	}
}

func (e *env) removePod(name string) {
	e.Helper()
	_, err := cluster.Admin().Try("DELETE", podPath+"/"+name+"?gracePeriodSeconds=0", nil)
	if err != nil && e.object(podPath+"/"+name) != nil {
		e.Error(err)
	}
}

func (e *env) kubeVirtObject(plural, kind, name string, owners ...any) (uid string) {
	e.Helper()
	created := cluster.Admin().Do(e, "POST", kubeVirtPath+plural, map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": kind,
		"metadata": map[string]any{"name": name, "finalizers": []string{kept}, "ownerReferences": owners},
	})
	return fmt.Sprint(at(created, "metadata", "uid"))
}

func controller(kind, name, uid string) any {
	return map[string]any{"apiVersion": "kubevirt.io/v1", "kind": kind, "name": name, "uid": uid, "controller": true}
}

// machine makes the machine vm1 anew, with its instance and a pod for it.
func (e *env) machine() {
	e.Helper()
	e.noMachine()
	vm := e.kubeVirtObject("virtualmachines", "VirtualMachine", "vm1")
	e.kubeVirtObject("virtualmachineinstances", "VirtualMachineInstance", "vm1", controller("VirtualMachine", "vm1", vm))
	e.launcher(launcher, "")
}

// migrate makes the pod that the machine is to move to.
func (e *env) migrate() (uid string) {
	e.Helper()
	uid = e.kubeVirtObject("virtualmachineinstancemigrations", "VirtualMachineInstanceMigration", "j1")
	e.launcher(target, uid)
	return uid
}

func (e *env) launcher(name, migration string) {
	e.Helper()
	labels := map[string]any{"kubevirt.io": "virt-launcher"}
	if migration != "" {
		labels["kubevirt.io/migrationJobUID"] = migration
	}
	instance := e.object(kubeVirtPath + "virtualmachineinstances/vm1")
	cluster.Admin().Do(e, "POST", podPath, map[string]any{
		"metadata": map[string]any{"name": name, "labels": labels, "ownerReferences": []any{
			controller("VirtualMachineInstance", "vm1", fmt.Sprint(at(instance, "metadata", "uid"))),
		}},
		"spec": map[string]any{"nodeName": "worker-b", "containers": []any{map[string]any{"name": "compute", "image": "none"}}},
	})
}

// end begins the deletion of the machine: its pods are disconnected then.
func (e *env) end() {
	e.Helper()
	for _, plural := range []string{"virtualmachines", "virtualmachineinstances"} {
		cluster.Admin().Do(e, "DELETE", kubeVirtPath+plural+"/vm1", nil)
	}
}

func (h *host) inPod(verb invocation.Verb, pod, container string, members ...any) *invocation.Call {
	h.Helper()
	call := h.call(verb, container, h.policy(members...))
	call.Args = "IgnoreUnknown=1;K8S_POD_NAME=" + pod + ";K8S_POD_NAMESPACE=shop"
	return call
}

// connect is ADD; it returns the addresses and the number of routes.
func (h *host) connect(p invocation.Plugin, pod, container string) (addresses []string, routes int) {
	h.Helper()
	result, err := h.run(p, h.inPod(invocation.Add, pod, container))
	if err != nil {
		h.Fatalf("ADD of %s: %v\n%s", pod, err, h.stderr.String())
	}
	for _, ip := range result.IPs {
		addresses = append(addresses, ip.Address.IP.String())
	}
	return addresses, len(result.Routes)
}

func (h *host) disconnect(p invocation.Plugin, pod, container string) {
	h.Helper()
	h.mustRun(p, h.inPod(invocation.Del, pod, container))
}

// held is what the machine has.
func (e *env) held() []ipam.Allocation {
	e.Helper()
	held, err := allocator(e.open()).AllocationsByHandle(e.within(time.Minute), machineHandle)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		e.Fatal(err)
	}
	return held
}

func (e *env) wantOwners(active, alternate string) {
	e.Helper()
	held := e.held()
	if len(held) != 1 || held[0].Attributes["pod"] != active || held[0].Alternate["pod"] != alternate {
		e.Errorf("the machine holds %+v, want the owners %q and %q", held, active, alternate)
	}
}

// swap does what the policy agent does when a migration completes.
func (e *env) swap() {
	e.Helper()
	held := e.held()[0]
	for alternate, owner := range map[bool]map[string]string{false: held.Alternate, true: held.Attributes} {
		err := allocator(e.open()).ChangeOwner(e.within(time.Minute), machineHandle, func(ipam.Holding) (ipam.OwnerChange, error) {
			return ipam.OwnerChange{Addresses: []netip.Addr{held.Addr}, Alternate: alternate, Owner: owner}, nil
		})
		if err != nil {
			e.Fatal(err)
		}
	}
}

// TestMachine is the life of a virtual machine whose address outlives its pods,
// with every write checked strictly against the schema: by the network plugin,
// and by an IPAM plugin that is executed.
func TestMachine(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		h := kubeVirt(e)
		e.proxy.Hook(strict)
		for name, p := range map[string]invocation.Plugin{
			"both plugins": h.calico(),
			"calico-ipam":  &ipamplugin.Plugin{Environment: h.environment(), NotesDirectory: filepath.Join(h.dir, "notes")},
		} {
			t.Run(name, func(*testing.T) {
				e.machine()
				first, routes := h.connect(p, launcher, "c1")
				if len(first) != 1 || routes != 1 {
					t.Fatalf("addresses %v, %d routes", first, routes)
				}
				owner := e.held()[0].Attributes
				instance := e.object(kubeVirtPath + "virtualmachineinstances/vm1")
				machine := e.object(kubeVirtPath + "virtualmachines/vm1")
				if owner["vmi-name"] != "vm1" || owner["vmi-uid"] != at(instance, "metadata", "uid") || owner["vm-uid"] != at(machine, "metadata", "uid") ||
					owner["node"] != "worker-b" || owner["namespace"] != "shop" {
					t.Errorf("the owner is %v", owner)
				}
				migration := e.migrate()
				moved, routes := h.connect(p, target, "c2")
				if !slices.Equal(moved, first) || routes != 0 {
					t.Errorf("the target has %v and %d routes, want %v", moved, routes, first)
				}
				if uid := e.held()[0].Alternate["vmim-uid"]; uid != migration {
					t.Errorf("the migration is %q, want %q", uid, migration)
				}
				e.wantOwners(launcher, target)
				e.swap()
				h.disconnect(p, launcher, "c1")
				e.wantOwners(target, "")
				h.disconnect(p, target, "c2")
				h.disconnect(p, target, "c2")
				e.wantOwners("", "")
				e.launcher(successor, "")
				if next, routes := h.connect(p, successor, "c3"); !slices.Equal(next, first) || routes != 1 {
					t.Errorf("the next pod has %v and %d routes, want %v", next, routes, first)
				}
				h.mustRun(p, h.inPod(invocation.GC, successor, "", "cni.dev/valid-attachments", []any{}))
				e.wantOwners(successor, "")
				e.end()
				h.disconnect(p, successor, "c3")
				h.gone(t)
			})
		}
	})
}

// TestMachineTargetSkipsRoutes: that is what no routes in the result mean.
func TestMachineTargetSkipsRoutes(t *testing.T) {
	e := newEnv(t, model.GroupV3)
	h := kubeVirt(e)
	p := h.calico()
	e.machine()
	h.connect(p, launcher, "c1")
	source := h.links.last.SkipHostRoutes
	e.migrate()
	h.connect(p, target, "c2")
	if source || !h.links.last.SkipHostRoutes {
		t.Errorf("host routes are skipped for the source: %v, for the target: %v", source, h.links.last.SkipHostRoutes)
	}
}

// TestMachineRefused: what cannot be right is an error that says so, and
// nothing is taken.
func TestMachineRefused(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		h := kubeVirt(e)
		p := h.calico()
		e.machine()
		e.migrate()
		refused := func(code cnierr.Code, words ...string) {
			t.Helper()
			_, err := h.run(p, h.inPod(invocation.Add, target, "c2"))
			if cnierr.CodeOf(err) != code {
				t.Fatalf("code %d, %v; want %d", cnierr.CodeOf(err), err, code)
			}
			for _, word := range words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the error %q does not name %q", err, word)
				}
			}
			h.gone(t)
		}
		refused(cnierr.TryAgainLater, "shop/"+target, machineHandle)
		h.switchOff()
		refused(cnierr.InvalidConfiguration, "shop/"+target, "kubeVirtVMAddressPersistence")
		h.connect(p, launcher, "c1")
		if held := e.held(); len(held) != 0 {
			t.Errorf("disabled, but the machine holds %+v", held)
		}
		e.consistent(1)
		h.disconnect(p, launcher, "c1")
		h.gone(t)
	})
}

// switchOff does what docs/kubevirt.md says, in the words of the group.
func (e *env) switchOff() {
	e.Helper()
	manifest := documented(e.T, "kubevirt.md", "yaml")[0]
	plural := "ipamconfigs"
	if e.group == model.GroupV3 {
		plural = "ipamconfigurations"
		manifest = strings.NewReplacer(string(model.GroupV1), string(model.GroupV3), "IPAMConfig", "IPAMConfiguration").Replace(manifest)
	}
	var object map[string]any
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		e.Fatal(err)
	}
	cluster.Admin().Do(e, "POST", e.path(plural), object)
}

// TestMachineShown: the command of docs/kubevirt.md tells both owners.
func TestMachineShown(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	h := kubeVirt(e)
	p := h.calico()
	e.machine()
	addresses, _ := h.connect(p, launcher, "c1")
	e.migrate()
	h.connect(p, target, "c2")
	command := strings.Fields(documented(t, "kubevirt.md", "")[0])
	if len(command) != 3 || command[1] != "show" || command[2] != "--ip="+addresses[0] {
		t.Fatalf("docs/kubevirt.md says %v; the address is %v", command, addresses)
	}
	shown := h.show(command[2:]...)
	for _, want := range []string{machineHandle, launcher, target} {
		if !strings.Contains(shown, want) {
			t.Errorf("%v does not tell %s:\n%s", command, want, shown)
		}
	}
}

// TestMachineUnreadable: what KubeVirt says of a machine cannot be read. ADD
// says why; DEL waits for a server that does not answer, but not for kinds that
// were removed.
func TestMachineUnreadable(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.refusals = true
	h := kubeVirt(e)
	p := h.calico()
	e.machine()
	h.connect(p, launcher, "c1")
	answer := func(status int, body string) {
		e.proxy.Hook(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/virtualmachineinstances/") {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				fmt.Fprint(w, body)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	fails := func(verb invocation.Verb, code cnierr.Code, words ...string) {
		t.Helper()
		_, err := h.run(p, h.inPod(verb, launcher, "c1"))
		if err == nil || cnierr.CodeOf(err) != code {
			t.Errorf("%s: code %d, %v; want %d", verb, cnierr.CodeOf(err), err, code)
			return
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error %q does not name %q", verb, err, word)
			}
		}
	}
	answer(http.StatusForbidden, `{"kind":"Status","reason":"Forbidden","message":"no"}`)
	fails(invocation.Add, cnierr.DatastoreRefused, "get", "virtualmachineinstances.kubevirt.io")
	h.links.owner = nil // the interface has gone
	fails(invocation.Del, cnierr.DatastoreRefused, "virtualmachineinstances.kubevirt.io")
	answer(http.StatusServiceUnavailable, `{}`)
	fails(invocation.Del, cnierr.TryAgainLater)
	e.wantOwners(launcher, "")
	answer(http.StatusNotFound, `{"kind":"Status","reason":"NotFound","message":"the server could not find the requested resource","details":{}}`)
	fails(invocation.Add, cnierr.TryAgainLater, "virtualmachineinstances.kubevirt.io", "CustomResourceDefinition")
	h.disconnect(p, launcher, "c1")
	e.wantOwners("", "")
}

// TestMachineCost: a machine's ADD asks for its instance and its handle, and
// reads and writes a block instead of taking an address from one.
func TestMachineCost(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		h := kubeVirt(e)
		p := h.calico()
		h.mustRun(p, h.call(invocation.Add, "first", h.policy()))
		e.machine()
		e.proxy.Latency = latency
		// batch | instance, handle | own block | handle | block | pod
		e.wantCost("first ADD", 6, 15, func() { h.connect(p, launcher, "c1") })
		// batch | instance, handle | block | block | pod
		e.wantCost("ADD", 5, 14, func() { h.connect(p, launcher, "c2") })
		// batch | pod | instance, configuration, handle | machine | block | block
		e.wantCost("DEL", 6, 12, func() { h.disconnect(p, launcher, "c2") })
		for _, exchange := range e.proxy.Exchanges() {
			if strings.Contains(exchange.Path, "kubevirt.io") && exchange.Method != http.MethodGet {
				t.Errorf("%s", exchange)
			}
		}
	})
}

// TestMachineRole: of KubeVirt's kinds the account may get two, no more.
func TestMachineRole(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	kubeVirt(e)
	e.machine()
	plugin := cluster.As(t, e.token)
	for _, plural := range []string{"virtualmachineinstances", "virtualmachines"} {
		if _, err := plugin.Try(http.MethodGet, kubeVirtPath+plural+"/vm1", nil); err != nil {
			t.Error(err)
		}
	}
	for _, row := range []struct{ method, path string }{
		{http.MethodGet, "virtualmachineinstances"},
		{http.MethodGet, "virtualmachines"},
		{http.MethodGet, "virtualmachineinstancemigrations/j1"},
		{http.MethodDelete, "virtualmachines/vm1"},
		{http.MethodPatch, "virtualmachineinstances/vm1"},
	} {
		_, err := plugin.Try(row.method, kubeVirtPath+row.path, map[string]any{})
		var answer *kubetest.AnswerError
		if !errors.As(err, &answer) || answer.Status != http.StatusForbidden {
			t.Errorf("%s %s: %v, want it forbidden", row.method, row.path, err)
		}
	}
}
