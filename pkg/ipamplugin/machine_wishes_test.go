package ipamplugin

import (
	"maps"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
)

// persist sets what the cluster says of machines' addresses.
func (n *node) persist(value string) {
	if n.store.Transactional() {
		n.store.Plant(resources+"ipamconfigurations/default", `{"kind":"IPAMConfiguration","metadata":{"name":"default"},"spec":`+value+`}`)
		// The allocator's own configuration says nothing of it.
		n.store.Plant("/calico/ipam/v2/config", `{"auto_allocate_blocks":true,"kubeVirtVMAddressPersistence":"Disabled"}`)
		return
	}
	n.store.Plant("/calico/ipam/v2/config", `{"auto_allocate_blocks":true,`+value[1:])
}

const disabled = `{"kubeVirtVMAddressPersistence":"Disabled"}`

func TestPersistence(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		n.persist(disabled)
		if addresses, routes := n.connect(source, "c1"); addresses[0] != "10.77.0.0/26" || routes != 1 {
			t.Errorf("disabled: %v, %d routes", addresses, routes)
		}
		if held := n.allocated(); !maps.Equal(held, map[string]int{"net.c1": 1}) {
			t.Errorf("disabled: allocated are %v", held)
		}
		n.launcher(destination, "j1")
		_, err := n.add(n.launch(invocation.Add, destination, "c2"))
		wantCode(t, err, cnierr.InvalidConfiguration, "shop/"+destination, "kubeVirtVMAddressPersistence")
		n.persist(`{"kubeVirtVMAddressPersistence":"Enabled"}`)
		n.disconnect(source, "c1") // as it was connected
		n.wantNothing()
		n.connect(source, "c3")
		n.wantOwners(source, "")
		n.persist(disabled)
		n.disconnect(source, "c3")
		n.wantOwners("", "")
		n.runs(true)
		n.disconnect(source, "c3")
		n.wantNothing()
	})
	t.Run("one that cannot be read", func(t *testing.T) {
		t.Parallel()
		n := newMachineNode(t, memory.Options{})
		n.store.Plant(resources+"ipamconfigurations/default", `{`)
		n.connect(source, "c1")
		n.wantOwners(source, "")
		if !strings.Contains(n.stderr.String(), "IPAMConfiguration") {
			t.Errorf("nothing was logged: %s", n.stderr.String())
		}
	})
}

// TestMachineFamilies: both families are kept, and one that comes later is
// added.
func TestMachineFamilies(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		n.connect(source, "c1")
		both, routes := n.connect(source, "c1", "ipam.assign_ipv6", "true")
		if len(both) != 2 || both[0] != "10.77.0.0/32" || !strings.HasSuffix(both[1], "/122") || routes != 2 {
			t.Errorf("IPv6 came later: %v, %d routes", both, routes)
		}
		again, _ := n.connect(source, "c1", "ipam.assign_ipv6", "true")
		six := strings.TrimSuffix(both[1], "/122") + "/128"
		if !slices.Equal(again, []string{"10.77.0.0/32", six}) {
			t.Errorf("then %v", again)
		}
		if only, _ := n.connect(source, "c1", "ipam.assign_ipv4", "false", "ipam.assign_ipv6", "true"); !slices.Equal(only, []string{six}) {
			t.Errorf("IPv6 alone: %v", only)
		}
		if held := n.allocated(); !maps.Equal(held, map[string]int{machineHandle: 2}) {
			t.Errorf("allocated are %v", held)
		}
	})
}

// TestMachineWishes: IP= names the address that a machine gets and keeps.
func TestMachineWishes(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, n *node) {
		wish := func(verb invocation.Verb, pod, container, addr string) *invocation.Call {
			call := n.launch(verb, pod, container)
			call.Args += ";IP=" + addr
			return call
		}
		for range 2 {
			if got, err := n.add(wish(invocation.Add, source, "c1", "10.77.0.9")); err != nil || !slices.Equal(got, []string{"10.77.0.9/32"}) {
				t.Fatalf("%v, %v", got, err)
			}
		}
		n.wantOwners(source, "")
		_, err := n.add(wish(invocation.Add, source, "c1", "10.77.0.10"))
		wantCode(t, err, cnierr.AddressTaken, "10.77.0.9", "10.77.0.10", "vm1")
		n.launcher(destination, "j1")
		delivered, err := n.runAdd(wish(invocation.Add, destination, "c2", "10.77.0.9"))
		if err != nil {
			t.Fatal(err)
		}
		if result, err := types100.NewResultFromResult(delivered); err != nil || len(result.Routes) != 0 || len(result.IPs) != 1 {
			t.Errorf("the target has %v, %v", result, err)
		}
		n.wantOwners(source, destination)
	})
}
