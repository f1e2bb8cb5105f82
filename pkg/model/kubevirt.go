package model

import "encoding/json"

// Kinds of KubeVirt that are read beside Calico's; nothing writes them. They
// are no part of Kinds.
const (
	KindVirtualMachine         Kind = "VirtualMachine"
	KindVirtualMachineInstance Kind = "VirtualMachineInstance"
)

// KubeVirtVersion is the group and version of KubeVirt's kinds.
const KubeVirtVersion = "kubevirt.io/v1"

// OwnerReference is an entry of metadata.ownerReferences.
type OwnerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       Kind   `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// controller is the reference to the object that controls this one; zero if
// there is none. An object has at most one.
func (m Metadata) controller() OwnerReference {
	var owners []OwnerReference
	_ = json.Unmarshal(m.unknown["ownerReferences"], &owners) // absent is none
	for _, owner := range owners {
		if owner.Controller {
			return owner
		}
	}
	return OwnerReference{}
}

// VirtualMachineInstance is a virtual machine that runs, or is about to.
type VirtualMachineInstance struct {
	Metadata Metadata
	// Controller is usually the virtual machine that the instance is a run of.
	Controller OwnerReference
}

// UnmarshalJSON reads KubeVirt's object.
func (v *VirtualMachineInstance) UnmarshalJSON(data []byte) error {
	metadata, err := decodeMetadata(data)
	if err != nil {
		return err
	}
	*v = VirtualMachineInstance{Metadata: metadata, Controller: metadata.controller()}
	v.Metadata.unknown = nil
	return nil
}

// VirtualMachine is a virtual machine, running or not.
type VirtualMachine struct{ Metadata Metadata }

// UnmarshalJSON reads KubeVirt's object.
func (v *VirtualMachine) UnmarshalJSON(data []byte) error {
	metadata, err := decodeMetadata(data)
	if err != nil {
		return err
	}
	*v = VirtualMachine{Metadata: metadata}
	v.Metadata.unknown = nil
	return nil
}

func decodeMetadata(data []byte) (Metadata, error) {
	var document struct {
		Metadata Metadata `json:"metadata"`
	}
	err := json.Unmarshal(data, &document)
	return document.Metadata, err
}
