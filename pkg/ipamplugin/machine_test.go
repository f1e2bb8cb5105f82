package ipamplugin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

const (
	resources     = "/calico/resources/v3/projectcalico.org/"
	instancePath  = resources + "virtualmachineinstances/shop/vm1"
	machinePath   = resources + "virtualmachines/shop/vm1"
	machineHandle = "net.vmi.shop.vm1"
	source        = "virt-launcher-vm1-aaaaa"
	destination   = "virt-launcher-vm1-bbbbb"
)

// forBothKinds runs a test on a datastore with transactions, beside an API
// server, and on one that is the API server.
func forBothKinds(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	for name, options := range map[string]memory.Options{"etcd": {}, "kubernetes": {NonTransactional: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newMachineNode(t, options))
		})
	}
}

// newMachineNode is a node of a cluster in which the machine vm1 runs.
func newMachineNode(t *testing.T, options memory.Options) *node {
	t.Helper()
	n := newNode(t)
	n.store = memory.New(options)
	for _, name := range []string{nodeName, "worker-c"} {
		n.create(model.KindNode, name, &model.Node{Metadata: model.Metadata{Name: name}})
	}
	n.pool("pods", "10.77.0.0/24", 26)
	n.pool("pods6", "fd00:77::/112", 122)
	n.store.Plant(resources+"namespaces/shop", `{"metadata":{"name":"shop"}}`)
	n.runs(false)
	n.launcher(source, "")
	return n
}

// runs makes the machine and its instance, which stop, or are being deleted.
func (n *node) runs(deleting bool) {
	deleted := ""
	if deleting {
		deleted = `"deletionTimestamp":"2026-03-04T05:06:07Z",`
	}
	n.store.Plant(machinePath, `{"metadata":{`+deleted+`"name":"vm1","namespace":"shop","uid":"m1"}}`)
	n.store.Plant(instancePath, `{"metadata":{`+deleted+`"name":"vm1","namespace":"shop","uid":"i1","ownerReferences":[
		{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"vm1","uid":"m1","controller":true}]}}`)
}

// launcher makes a pod of the machine, as the target of a migration if that has
// a UID.
func (n *node) launcher(name, migration string) {
	label := ""
	if migration != "" {
		label = fmt.Sprintf(`"labels":{"kubevirt.io/migrationJobUID":%q},`, migration)
	}
	n.store.Plant(resources+"pods/shop/"+name, fmt.Sprintf(`{"metadata":{%s"name":%q,"namespace":"shop","uid":"p","ownerReferences":[
		{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","name":"vm1","uid":"i1","controller":true}]},"spec":{"nodeName":"worker-b"}}`, label, name))
}

// launch is a call for a container of a pod of the machine.
func (n *node) launch(verb invocation.Verb, pod, container string, members ...any) *invocation.Call {
	n.t.Helper()
	call := n.call(verb, n.config(append([]any{"policy", map[string]any{"type": "k8s"}}, members...)...))
	call.ContainerID, call.Netns = container, "/ns/"+container
	call.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + pod
	return call
}

// connect runs ADD and returns the addresses and how many routes there are.
func (n *node) connect(pod, container string, members ...any) (addresses []string, routes int) {
	n.t.Helper()
	delivered, err := n.runAdd(n.launch(invocation.Add, pod, container, members...))
	if err != nil {
		n.t.Fatal(err)
	}
	result, err := types100.NewResultFromResult(delivered)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, ip := range result.IPs {
		addresses = append(addresses, ip.Address.String())
	}
	return addresses, len(result.Routes)
}

func (n *node) disconnect(pod, container string, members ...any) {
	n.t.Helper()
	if err := n.plugin.Del(deadline(n.t), n.launch(invocation.Del, pod, container, members...)); err != nil {
		n.t.Fatal(err)
	}
}

// machineHolds are the addresses of the machine.
func (n *node) machineHolds() []ipam.Allocation {
	n.t.Helper()
	held, err := ipam.New(n.store.Competitor(), ipam.Options{}).AllocationsByHandle(deadline(n.t), machineHandle)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		n.t.Fatal(err)
	}
	return held
}

// wantOwners checks who owns the machine's one address.
func (n *node) wantOwners(active, alternate string) {
	n.t.Helper()
	held := n.machineHolds()
	if len(held) != 1 || held[0].Attributes["pod"] != active || held[0].Alternate["pod"] != alternate {
		n.t.Errorf("the machine holds %+v, want the owners %q and %q", held, active, alternate)
	}
}

func (n *node) wantNothing() {
	n.t.Helper()
	if held := n.allocated(); len(held) != 0 {
		n.t.Errorf("allocated are %v", held)
	}
	if _, left := n.store.Raw("/calico/ipam/v2/handle/" + machineHandle); left {
		n.t.Error("the machine's handle is left")
	}
}

// TestMachineLife: first pod, next pod on another node, end.
func TestMachineLife(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		first, routes := n.connect(source, "c1")
		if len(first) != 1 || first[0] != "10.77.0.0/26" || routes != 1 {
			t.Fatalf("addresses %v, %d routes", first, routes)
		}
		owner := n.machineHolds()[0].Attributes
		for name, want := range map[string]string{
			"node": nodeName, "namespace": "shop", "pod": source, "vmi-name": "vm1", "vmi-uid": "i1", "vm-uid": "m1", "vmim-uid": "",
			"timestamp": ipam.FormatTimestamp(n.now),
		} {
			if owner[name] != want {
				t.Errorf("attribute %s is %q, want %q", name, owner[name], want)
			}
		}
		if again, routes := n.connect(source, "c1"); !slices.Equal(again, []string{"10.77.0.0/32"}) || routes != 1 {
			t.Errorf("the same ADD again: %v, %d routes", again, routes)
		}
		n.disconnect(source, "c1")
		n.wantOwners("", "")
		n.disconnect(source, "c1")
		n.wantOwners("", "")
		n.launcher("virt-launcher-vm1-ccccc", "")
		if next, routes := n.connect("virt-launcher-vm1-ccccc", "c2", "nodename", "worker-c"); !slices.Equal(next, []string{"10.77.0.0/32"}) || routes != 1 {
			t.Errorf("the next pod: %v, %d routes", next, routes)
		}
		n.wantOwners("virt-launcher-vm1-ccccc", "")
		if node := n.machineHolds()[0].Attributes["node"]; node != "worker-c" {
			t.Errorf("the owner is on node %s", node)
		}
		n.runs(true)
		n.disconnect("virt-launcher-vm1-ccccc", "c2", "nodename", "worker-c")
		n.wantNothing()
		if n.notes() != 0 {
			t.Errorf("%d notes are left", n.notes())
		}
	})
}

// TestMachineMigrates: the target has the address and no routes; when the
// policy agent has swapped the owners, the source leaves.
func TestMachineMigrates(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		n.connect(source, "c1")
		n.launcher(destination, "j1")
		for range 2 {
			addresses, routes := n.connect(destination, "c2", "nodename", "worker-c")
			if !slices.Equal(addresses, []string{"10.77.0.0/32"}) || routes != 0 {
				t.Errorf("the target has %v, %d routes", addresses, routes)
			}
			n.wantOwners(source, destination)
		}
		if uid := n.machineHolds()[0].Alternate["vmim-uid"]; uid != "j1" {
			t.Errorf("the migration is %q", uid)
		}
		n.swap()
		n.wantOwners(destination, source)
		n.disconnect(source, "c1")
		n.wantOwners(destination, "")
		t.Run("a new sandbox of the pod moved to", func(t *testing.T) {
			if _, routes := n.connect(destination, "c3", "nodename", "worker-c"); routes != 1 {
				t.Errorf("%d routes, but the machine runs here", routes)
			}
			n.wantOwners(destination, "")
		})
		n.runs(true)
		n.disconnect(destination, "c3", "nodename", "worker-c")
		n.wantNothing()
	})
}

// swap does what the policy agent does when a migration completes.
func (n *node) swap() {
	n.t.Helper()
	held := n.machineHolds()[0]
	for alternate, owner := range map[bool]map[string]string{false: held.Alternate, true: held.Attributes} {
		err := ipam.New(n.store.Competitor(), ipam.Options{}).ChangeOwner(deadline(n.t), machineHandle, func(ipam.Holding) (ipam.OwnerChange, error) {
			return ipam.OwnerChange{Addresses: []netip.Addr{held.Addr}, Alternate: alternate, Owner: owner}, nil
		})
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestMigrationFails: the target leaves, the machine stays where it is.
func TestMigrationFails(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		n.launcher(destination, "j1")
		_, err := n.add(n.launch(invocation.Add, destination, "c2"))
		wantCode(t, err, cnierr.TryAgainLater, "shop/"+destination, machineHandle)
		n.wantNothing()
		n.connect(source, "c1")
		n.connect(destination, "c2")
		n.disconnect(destination, "c2")
		n.wantOwners(source, "")
	})
}

// TestMachineEnds is when DEL gives a machine's address back (IPAM contract 9).
func TestMachineEnds(t *testing.T) {
	t.Parallel()
	alone := func(deleted string) string {
		return `{"metadata":{` + deleted + `"name":"vm1","namespace":"shop","uid":"i1"}}`
	}
	for name, test := range map[string]struct {
		change   func(n *node)
		released bool
		// named: the pod is still the owner.
		named bool
	}{
		"the machine runs on":         {func(*node) {}, false, false},
		"the machine is stopped":      {func(n *node) { n.store.Uproot(instancePath) }, false, false},
		"the machine is gone":         {func(n *node) { n.store.Uproot(machinePath) }, true, false},
		"both are gone":               {func(n *node) { n.store.Uproot(machinePath); n.store.Uproot(instancePath) }, true, false},
		"the machine is made anew":    {func(n *node) { n.store.Plant(machinePath, `{"metadata":{"name":"vm1","namespace":"shop","uid":"m2"}}`) }, true, false},
		"an instance of its own":      {func(n *node) { n.store.Plant(instancePath, alone("")) }, false, false},
		"an instance being deleted":   {func(n *node) { n.store.Plant(instancePath, alone(`"deletionTimestamp":"2026-03-04T05:06:07Z",`)) }, true, false},
		"the pod is gone":             {func(n *node) { n.runs(true); n.store.Uproot(resources + "pods/shop/" + source) }, false, true},
		"another pod owns it as well": {func(n *node) { n.launcher(destination, "j1"); n.connect(destination, "c2"); n.runs(true) }, false, false},
		"a newer sandbox has it":      {func(n *node) { n.runs(true); n.record(source, "c9") }, false, true},
		"its own record":              {func(n *node) { n.runs(true); n.record(source, "c1") }, true, false},
		"KubeVirt was removed": {func(n *node) {
			n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
				if strings.Contains(call.String(), "VirtualMachineInstance") {
					return &datastore.UnavailableError{Reason: datastore.Undefined, Doing: call.String(), Err: errors.New("no such resource")}
				}
				return nil
			}})
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forBothKinds(t, func(t *testing.T, n *node) {
				n.connect(source, "c1")
				test.change(n)
				n.disconnect(source, "c1")
				held := n.machineHolds()
				if (len(held) == 0) != test.released {
					t.Fatalf("the machine holds %+v, want it released: %v", held, test.released)
				}
				if !test.released && (held[0].Attributes["pod"] == source) != test.named {
					t.Errorf("the owner is %v", held[0].Attributes)
				}
			})
		})
	}
}

// record makes the endpoint record of a pod.
func (n *node) record(pod, container string) {
	n.t.Helper()
	name := "worker--b-k8s-" + strings.ReplaceAll(pod, "-", "--") + "-eth0"
	value := &model.WorkloadEndpoint{
		Metadata: model.Metadata{Name: name, Namespace: "shop"}, Spec: model.WorkloadEndpointSpec{ContainerID: container},
	}
	put := datastore.Put(model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: name}, value, datastore.Absent)
	if _, err := n.store.Write(deadline(n.t), datastore.Step{put}); err != nil {
		n.t.Fatal(err)
	}
}

// TestMachineCheck: CHECK finds a machine's address under the machine's handle.
func TestMachineCheck(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		result, err := n.runAdd(n.launch(invocation.Add, source, "c1"))
		if err != nil {
			t.Fatal(err)
		}
		check := n.launch(invocation.Check, source, "c1", "prevResult", result)
		if err := n.plugin.Check(deadline(t), check); err != nil {
			t.Error(err)
		}
		n.runs(true)
		n.disconnect(source, "c1")
		wantCode(t, n.plugin.Check(deadline(t), check), cnierr.CheckFailed, "10.77.0.0", "net.c1", machineHandle)
	})
}

// TestMachineGC: the address stays, whoever is attached.
func TestMachineGC(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		n.connect(source, "c1")
		n.now = n.now.Add(1)
		if err := n.plugin.GC(deadline(t), n.launch(invocation.GC, source, "", "cni.dev/valid-attachments", nil)); err != nil {
			t.Fatal(err)
		}
		n.wantOwners(source, "")
		if n.notes() != 0 {
			t.Errorf("%d notes of a container that is gone", n.notes())
		}
	})
}

// TestMachineResultRefused: nobody takes the result; the address stays with its
// machine, and DEL takes the pod's name off.
func TestMachineResultRefused(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		n.connect(source, "c1")
		call := n.launch(invocation.Add, source, "c1")
		call.Deliver = func(types.Result) error { return cnierr.New(cnierr.InputOutput, "broken pipe") }
		wantCode(t, n.plugin.Add(deadline(t), call), cnierr.InputOutput)
		n.wantOwners(source, "")
	})
}
