package model

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

func TestController(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		owners string
		want   OwnerReference
	}{
		"none":             {``, OwnerReference{}},
		"an owner only":    {`,"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"u"}]`, OwnerReference{}},
		"one of two":       {`,"ownerReferences":[{"kind":"Node","name":"a"},{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"b","uid":"u","controller":true}]`, OwnerReference{"kubevirt.io/v1", KindVirtualMachine, "b", "u", true}},
		"what is no list":  {`,"ownerReferences":{"name":"a"}`, OwnerReference{}},
		"what is no owner": {`,"ownerReferences":["a"]`, OwnerReference{}},
	} {
		document := `{"metadata":{"name":"x","namespace":"shop","deletionTimestamp":"2026-03-04T05:06:07Z"` + test.owners + `},"spec":{"nodeName":"n1"}}`
		var pod Pod
		var instance VirtualMachineInstance
		var machine VirtualMachine
		for _, value := range []any{&pod, &instance, &machine} {
			if err := json.Unmarshal([]byte(document), value); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if pod.Controller != test.want || instance.Controller != test.want {
			t.Errorf("%s: controllers %+v and %+v, want %+v", name, pod.Controller, instance.Controller, test.want)
		}
		if !instance.Metadata.Deleting || !machine.Metadata.Deleting || machine.Metadata.Namespace != "shop" {
			t.Errorf("%s: instance %+v, machine %+v", name, instance.Metadata, machine.Metadata)
		}
	}
	for _, value := range []any{&VirtualMachineInstance{}, &VirtualMachine{}, &IPAMConfiguration{}} {
		if err := json.Unmarshal([]byte(`{"metadata":[],"spec":[]}`), value); err == nil {
			t.Errorf("%T: nonsense was decoded", value)
		}
	}
}

func TestSetOwner(t *testing.T) {
	t.Parallel()
	b := newTestBlock("10.77.0.0/29", nil)
	b.Allocate(3, holderNamed("net.vmi.shop.vm1"), nil)
	b.Allocate(1, holderNamed("net.a"), nil)
	first, second := map[string]string{"pod": "a"}, map[string]string{"pod": "b"}
	b.SetOwner([]int{0, 2}, false, first)
	b.SetOwner([]int{2}, true, second)
	b.SetOwner(nil, false, nil)
	first["pod"] = "changed" // is the caller's
	for ordinal, want := range map[int][2]string{0: {"a", ""}, 1: {"", ""}, 2: {"a", "b"}, 3: {"", ""}} {
		holder := b.HolderOf(ordinal)
		if holder.Owner["pod"] != want[0] || holder.AlternateOwner["pod"] != want[1] {
			t.Errorf("ordinal %d is owned by %v and %v", ordinal, holder.Owner, holder.AlternateOwner)
		}
	}
	if !slices.Equal(b.Held("net.vmi.shop.vm1"), []int{0, 1, 2}) || !slices.Equal(b.Held("net.a"), []int{3}) || len(b.Attributes) != 4 {
		t.Errorf("attributes %+v of %v", b.Attributes, b.Allocations)
	}
	b.SetOwner([]int{0, 1, 2}, false, nil)
	b.SetOwner([]int{2}, true, nil)
	for ordinal := range 3 {
		if holder := b.HolderOf(ordinal); len(holder.Owner)+len(holder.AlternateOwner) != 0 || holder.HandleID != "net.vmi.shop.vm1" {
			t.Errorf("ordinal %d: %+v", ordinal, holder)
		}
	}
	if err := b.valid(); err != nil || b.Empty() || !maps.Equal(b.HolderOf(3).Owner, map[string]string{"node": "worker-b"}) {
		t.Errorf("%v; %+v", err, b)
	}
}
