package plugin

import (
	"maps"
	"strings"
	"testing"

	"calico-cni/pkg/annotation"
	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

const (
	launcherPod  = "virt-launcher-vm1-aaaaa"
	targetPod    = "virt-launcher-vm1-bbbbb"
	machineOwner = "net.vmi.shop.vm1"
	kubeRoot     = "/calico/resources/v3/projectcalico.org/"
)

// machineNode is a node on which the machine vm1 runs in a pod, and is about to
// move to another one.
func machineNode(t *testing.T, wishes annotations) *node {
	t.Helper()
	n := podNode(t, nil, nil)
	owner := func(kind, uid string) []any {
		return []any{map[string]any{"apiVersion": "kubevirt.io/v1", "kind": kind, "name": "vm1", "uid": uid, "controller": true}}
	}
	for name, labels := range map[string]map[string]string{launcherPod: nil, targetPod: {"kubevirt.io/migrationJobUID": "j1"}} {
		n.plantJSON(kubeRoot+"pods/shop/"+name, map[string]any{
			"metadata": map[string]any{"name": name, "namespace": "shop", "uid": name, "labels": labels, "annotations": wishes,
				"ownerReferences": owner("VirtualMachineInstance", "i1")},
			"spec": map[string]any{"nodeName": nodeName},
		})
	}
	n.plantJSON(kubeRoot+"virtualmachineinstances/shop/vm1", map[string]any{"metadata": map[string]any{
		"name": "vm1", "namespace": "shop", "uid": "i1", "ownerReferences": owner("VirtualMachine", "m1")}})
	n.plantJSON(kubeRoot+"virtualmachines/shop/vm1", map[string]any{"metadata": map[string]any{"name": "vm1", "namespace": "shop", "uid": "m1"}})
	return n
}

func runs(pod, id string) func(*invocation.Call) {
	return func(call *invocation.Call) {
		call.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + pod
		container(id)(call)
	}
}

// TestMachineMoves: the host gets no routes to the address of a machine that
// still runs elsewhere, be it one that its pods wish for.
func TestMachineMoves(t *testing.T) {
	t.Parallel()
	for name, wishes := range map[string]annotations{
		"Network/52 any address":     nil,
		"Network/52 a fixed address": {annotation.IPAddrs: `["10.77.0.9"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := machineNode(t, wishes)
			first := n.mustAddPod(n.policy(), runs(launcherPod, "c1"))
			result, err := n.addPod(n.policy(), runs(targetPod, "c2"))
			if err != nil {
				t.Fatal(err)
			}
			if len(result.IPs) != 1 || result.IPs[0].Address.IP.String() != first[0] || len(result.Routes) != 0 {
				t.Errorf("the target has %+v, the source %v", result, first)
			}
			if requests := n.dataplane.requests; requests[0].SkipHostRoutes || !requests[1].SkipHostRoutes {
				t.Errorf("host routes are skipped: source %v, target %v", requests[0].SkipHostRoutes, requests[1].SkipHostRoutes)
			}
			if err := n.plugin.Check(deadline(t), n.call(invocation.Check, n.policy("prevResult", result), runs(targetPod, "c2"))); err != nil {
				t.Errorf("CHECK of the target: %v", err)
			}
			if held := n.allocated(); !maps.Equal(held, map[string]string{first[0]: machineOwner}) {
				t.Errorf("held %v", held)
			}
		})
	}
}

// TestFailedAddKeepsMachine: what an ADD that fails undoes is not the machine's
// address, whether it was there before or not.
func TestFailedAddKeepsMachine(t *testing.T) {
	t.Parallel()
	n := machineNode(t, nil)
	n.dataplane.fail["Add"] = cnierr.New(cnierr.NetlinkRefused, "no")
	_, err := n.addPod(n.policy(), runs(launcherPod, "c1"))
	wantCode(t, err, cnierr.NetlinkRefused)
	first := n.allocated()
	if len(first) != 1 {
		t.Fatalf("held %v", first)
	}
	delete(n.dataplane.fail, "Add")
	addresses := n.mustAddPod(n.policy(), runs(launcherPod, "c2"))
	if !maps.Equal(n.allocated(), first) || first[addresses[0]] != machineOwner {
		t.Errorf("the next ADD has %v, held are %v, before %v", addresses, n.allocated(), first)
	}
	n.dataplane.fail["Confirm"] = cnierr.New(cnierr.Overtaken, "gone")
	_, err = n.addPod(n.policy(), runs(targetPod, "c3"))
	wantCode(t, err, cnierr.Overtaken)
	if !maps.Equal(n.allocated(), first) {
		t.Errorf("held %v, before %v", n.allocated(), first)
	}
	for _, entry := range n.entries(datastore.ListBlocks{Family: model.IPv4}) {
		attribute := entry.Value.(*model.Block).Attributes[0]
		if attribute.Owner["pod"] != launcherPod || len(attribute.AlternateOwner) != 0 {
			t.Errorf("owners %v and %v", attribute.Owner, attribute.AlternateOwner)
		}
	}
}

// TestMachineBatch: in one process a machine's pod comes with the batch that
// every ADD and DEL reads.
func TestMachineBatch(t *testing.T) {
	t.Parallel()
	n := machineNode(t, nil)
	n.mustAddPod(n.policy(), runs(launcherPod, "c1"))
	for _, verb := range []invocation.Verb{invocation.Add, invocation.Del} {
		n.store.ForgetCalls()
		call := n.call(verb, n.policy(), runs(launcherPod, "c1"))
		var err error
		if verb == invocation.Add {
			_, err = n.runAdd(call)
		} else {
			err = n.plugin.Del(deadline(t), call)
		}
		if err != nil {
			t.Fatal(err)
		}
		calls := n.store.Calls()
		for i, c := range calls {
			if asked := strings.Contains(c.String(), "Pod shop/"); asked != (i == 0) {
				t.Errorf("%s: call %d of %d is %s", verb, i, len(calls), c)
			}
		}
	}
}
