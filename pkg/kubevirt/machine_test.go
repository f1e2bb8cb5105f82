package kubevirt

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

func TestHandleID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("v", 120)
	for name, test := range map[string]struct{ network, namespace, instance, want string }{
		"a machine":            {"k8s-pod-network", "shop", "vm1", "k8s-pod-network.vmi.shop.vm1"},
		"over 128 characters":  {"k8s-pod-network", "shop", long, "k8s-pod-network.vmi._moC1i06SBeeyXX_JYLqwGrE6xPjaFg0CkKvM2sbNlPU"},
		"exactly 128":          {"n", "shop", strings.Repeat("v", 117), "n.vmi.shop." + strings.Repeat("v", 117)},
		"a long network's too": {strings.Repeat("n", 100), "shop", long, strings.Repeat("n", 100) + ".vmi._moC1i06SBeeyXX_JYLqwGr"},
	} {
		if got := HandleID(test.network, test.namespace, test.instance); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// launch is a pod of the instance vm1, which belongs to a machine.
func launch(change func(*Launch)) Launch {
	l := Launch{
		Network: "net",
		Pod: &model.Pod{
			Metadata:   model.Metadata{Namespace: "shop", Name: "virt-launcher-vm1-abcde"},
			Controller: model.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: model.KindVirtualMachineInstance, Name: "vm1", UID: "i1", Controller: true},
		},
		Instance: &model.VirtualMachineInstance{
			Metadata:   model.Metadata{Namespace: "shop", Name: "vm1", UID: "i1"},
			Controller: model.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: model.KindVirtualMachine, Name: "vm1", UID: "m1", Controller: true},
		},
	}
	if change != nil {
		change(&l)
	}
	return l
}

func target(l *Launch) { l.Pod.Metadata.Labels = map[string]string{labelMigration: "j1"} }

func TestRecognize(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Launch)
		// machine: the pod gets the machine's addresses; code: it is refused.
		machine    bool
		attributes map[string]string
		code       cnierr.Code
		words      []string
	}{
		"a machine": {nil, true, map[string]string{"vmi-name": "vm1", "vmi-uid": "i1", "vm-uid": "m1"}, 0, nil},
		"the target of a migration": {target, true,
			map[string]string{"vmi-name": "vm1", "vmi-uid": "i1", "vm-uid": "m1", "vmim-uid": "j1"}, 0, nil},
		"an instance of its own": {func(l *Launch) { l.Instance.Controller = model.OwnerReference{} }, true,
			map[string]string{"vmi-name": "vm1", "vmi-uid": "i1"}, 0, nil},
		"an instance of a replica set": {func(l *Launch) { l.Instance.Controller.Kind = "VirtualMachineInstanceReplicaSet" }, true,
			map[string]string{"vmi-name": "vm1", "vmi-uid": "i1"}, 0, nil},
		"enabled by name":                {func(l *Launch) { l.Persistence = "Enabled" }, true, nil, 0, nil},
		"what is no value is no refusal": {func(l *Launch) { l.Persistence = "disabled" }, true, nil, 0, nil},
		"no pod":                         {func(l *Launch) { l.Pod = nil }, false, nil, 0, nil},
		"another name":                   {func(l *Launch) { l.Pod.Metadata.Name = "web-0" }, false, nil, 0, nil},
		"no controller":                  {func(l *Launch) { l.Pod.Controller = model.OwnerReference{} }, false, nil, 0, nil},
		"another controller":             {func(l *Launch) { l.Pod.Controller.Kind = "ReplicaSet" }, false, nil, 0, nil},
		"of another group":               {func(l *Launch) { l.Pod.Controller.APIVersion = "example.org/v1" }, false, nil, 0, nil},
		"the instance is gone":           {func(l *Launch) { l.Instance = nil }, false, nil, 0, nil},
		"the instance was made anew":     {func(l *Launch) { l.Instance.Metadata.UID = "i2" }, false, nil, 0, nil},
		"disabled":                       {func(l *Launch) { l.Persistence = "Disabled" }, false, nil, 0, nil},
		"disabled, target": {func(l *Launch) { target(l); l.Persistence = "Disabled" }, false, nil,
			cnierr.InvalidConfiguration, []string{"shop/virt-launcher-vm1-abcde", "kubeVirtVMAddressPersistence", "Enabled"}},
		"the target of an instance that is gone": {func(l *Launch) { target(l); l.Instance = nil }, false, nil,
			cnierr.TryAgainLater, []string{"shop/virt-launcher-vm1-abcde", "vm1", "i1"}},
		"the target of an instance made anew": {func(l *Launch) { target(l); l.Instance.Metadata.UID = "i2" }, false, nil,
			cnierr.TryAgainLater, []string{"i1"}},
		"a label without a machine": {func(l *Launch) { target(l); l.Pod.Controller = model.OwnerReference{} }, false, nil, 0, nil},
	} {
		m, err := Recognize(launch(test.change))
		if (m != nil) != test.machine || !refused(err, test.code, test.words...) {
			t.Errorf("%s: %v, code %d, %v; want code %d with %q", name, m, cnierr.CodeOf(err), err, test.code, test.words)
			continue
		}
		if m != nil && (m.HandleID != "net.vmi.shop.vm1" || test.attributes != nil && !maps.Equal(m.Attributes, test.attributes)) {
			t.Errorf("%s: handle %s, attributes %v", name, m.HandleID, m.Attributes)
		}
	}
}

// refused reports whether an error has a code and names these words; without a
// code there must be none.
func refused(err error, code cnierr.Code, words ...string) bool {
	if err == nil || code == 0 {
		return err == nil && code == 0
	}
	return cnierr.CodeOf(err) == code && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(err.Error(), word) })
}

func machine(t *testing.T, change func(*Launch)) *Machine {
	t.Helper()
	m, err := Recognize(launch(change))
	if err != nil || m == nil {
		t.Fatalf("%v, %v", m, err)
	}
	return m
}

func TestOwner(t *testing.T) {
	t.Parallel()
	ofPod := map[string]string{"node": "n1", "pod": "virt-launcher-vm1-abcde"}
	owner := machine(t, nil).Owner(ofPod)
	if owner["node"] != "n1" || owner["vmi-name"] != "vm1" || owner["vm-uid"] != "m1" || len(ofPod) != 2 {
		t.Errorf("owner %v of %v", owner, ofPod)
	}
}

// held is what the machine has, with the pod that is its active owner.
func held(pod string, addresses ...string) []ipam.Allocation {
	var out []ipam.Allocation
	for _, text := range addresses {
		out = append(out, ipam.Allocation{Addr: netip.MustParseAddr(text), Attributes: map[string]string{"namespace": "shop", "pod": pod}})
	}
	return out
}

func same(a, b Assignment) bool {
	return slices.Equal(a.Reused, b.Reused) && slices.Equal(a.Missing, b.Missing) && a.Alternate == b.Alternate
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

const other, own = "virt-launcher-vm1-zzzzz", "virt-launcher-vm1-abcde"

func TestAssign(t *testing.T) {
	t.Parallel()
	both := []model.Family{model.IPv4, model.IPv6}
	for name, test := range map[string]struct {
		target bool
		held   []ipam.Allocation
		wanted []model.Family
		want   Assignment
		code   cnierr.Code
	}{
		"the first pod":                {false, nil, both, Assignment{Missing: both}, 0},
		"the next pod":                 {false, held(other, "10.0.0.1"), both[:1], Assignment{Reused: addrs("10.0.0.1")}, 0},
		"IPv4 first":                   {false, held(other, "fd00::1", "10.0.0.1"), both, Assignment{Reused: addrs("10.0.0.1", "fd00::1")}, 0},
		"a family more":                {false, held(other, "10.0.0.1"), both, Assignment{Reused: addrs("10.0.0.1"), Missing: both[1:]}, 0},
		"a family less":                {false, held(other, "10.0.0.1", "fd00::1"), both[1:], Assignment{Reused: addrs("fd00::1")}, 0},
		"more than it should have":     {false, held(other, "10.0.0.1", "10.0.0.2"), both[:1], Assignment{Reused: addrs("10.0.0.1", "10.0.0.2")}, 0},
		"a target":                     {true, held(other, "10.0.0.1"), both[:1], Assignment{Reused: addrs("10.0.0.1"), Alternate: true}, 0},
		"a target, a family more":      {true, held(other, "10.0.0.1"), both, Assignment{Reused: addrs("10.0.0.1"), Alternate: true}, 0},
		"a target, a family less":      {true, held(other, "10.0.0.1", "fd00::1"), both[:1], Assignment{Reused: addrs("10.0.0.1", "fd00::1"), Alternate: true}, 0},
		"a target before the machine":  {true, nil, both, Assignment{}, cnierr.TryAgainLater},
		"a target without active one":  {true, held("", "10.0.0.1"), both[:1], Assignment{Reused: addrs("10.0.0.1"), Alternate: true}, 0},
		"a target that was moved to":   {true, held(own, "10.0.0.1"), both[:1], Assignment{Reused: addrs("10.0.0.1")}, 0},
		"its pod of another namespace": {true, []ipam.Allocation{{Addr: addrs("10.0.0.1")[0], Attributes: map[string]string{"namespace": "x", "pod": own}}}, both[:1], Assignment{Reused: addrs("10.0.0.1"), Alternate: true}, 0},
	} {
		change := func(*Launch) {}
		if test.target {
			change = target
		}
		got, err := machine(t, change).Assign(test.held, test.wanted)
		if !same(got, test.want) || !refused(err, test.code) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, test.want)
		}
	}
}

func TestAssignAddress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		target bool
		held   []ipam.Allocation
		want   Assignment
		code   cnierr.Code
	}{
		"the first pod":             {false, nil, Assignment{Missing: []model.Family{model.IPv4}}, 0},
		"the next pod":              {false, held(other, "10.0.0.9", "fd00::1"), Assignment{Reused: addrs("10.0.0.9")}, 0},
		"beside the other family's": {false, held(other, "fd00::1"), Assignment{Missing: []model.Family{model.IPv4}}, 0},
		"instead of another":        {false, held(other, "10.0.0.1"), Assignment{}, cnierr.AddressTaken},
		"a target":                  {true, held(other, "10.0.0.9"), Assignment{Reused: addrs("10.0.0.9"), Alternate: true}, 0},
		"a target with another":     {true, held(other, "10.0.0.1"), Assignment{}, cnierr.AddressTaken},
		"a target without any":      {true, nil, Assignment{}, cnierr.TryAgainLater},
	} {
		change := func(*Launch) {}
		if test.target {
			change = target
		}
		got, err := machine(t, change).AssignAddress(test.held, netip.MustParseAddr("10.0.0.9"))
		if !same(got, test.want) || !refused(err, test.code) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, test.want)
		}
	}
}

func TestEnded(t *testing.T) {
	t.Parallel()
	owned := func(deleting bool) *model.VirtualMachineInstance {
		instance := launch(nil).Instance
		instance.Metadata.Deleting = deleting
		return instance
	}
	alone := func(deleting bool) *model.VirtualMachineInstance {
		instance := owned(deleting)
		instance.Controller = model.OwnerReference{}
		return instance
	}
	vm := func(uid string, deleting bool) *model.VirtualMachine {
		return &model.VirtualMachine{Metadata: model.Metadata{Name: "vm1", UID: uid, Deleting: deleting}}
	}
	for name, test := range map[string]struct {
		instance *model.VirtualMachineInstance
		machine  *model.VirtualMachine
		asked    string
		want     bool
	}{
		"running":                         {owned(false), vm("m1", false), "vm1", false},
		"stopping":                        {owned(true), vm("m1", false), "vm1", false},
		"being deleted":                   {owned(true), vm("m1", true), "vm1", true},
		"being deleted, instance not yet": {owned(false), vm("m1", true), "vm1", true},
		"deleted before its instance":     {owned(true), nil, "vm1", true},
		"made anew before its old instance is gone":  {owned(true), vm("m2", false), "vm1", true},
		"stopped: instance gone":                     {nil, vm("m1", false), "vm1", false},
		"instance gone, machine being deleted":       {nil, vm("m1", true), "vm1", true},
		"both gone, or an instance without machine":  {nil, nil, "vm1", true},
		"an instance without machine":                {alone(false), nil, "", false},
		"an instance without machine, being deleted": {alone(true), nil, "", true},
	} {
		if name, _ := MachineOf("vm1", test.instance); name != test.asked {
			t.Errorf("%s: %q is asked for, want %q", name, name, test.asked)
		}
		if got := Ended(test.instance, test.machine); got != test.want {
			t.Errorf("%s: ended is %v", name, got)
		}
	}
}
