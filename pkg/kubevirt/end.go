package kubevirt

import "calico-cni/pkg/model"

// MachineOf names the virtual machine that tells whether an instance's
// addresses are still needed; ask is false if the instance itself does. A
// machine and its instances have one name, so one that was stopped is found
// although its instance is gone.
func MachineOf(instanceName string, instance *model.VirtualMachineInstance) (name string, ask bool) {
	switch {
	case instance == nil:
		return instanceName, true
	case isKind(instance.Controller, model.KindVirtualMachine):
		return instance.Controller.Name, true
	}
	return "", false
}

// Ended reports whether the addresses of an instance are needed no more: its
// virtual machine, or an instance without one, is being deleted or is gone.
// machine is the one that MachineOf names, nil if there is none.
func Ended(instance *model.VirtualMachineInstance, machine *model.VirtualMachine) bool {
	if instance == nil {
		return machine == nil || machine.Metadata.Deleting
	}
	if !isKind(instance.Controller, model.KindVirtualMachine) {
		return instance.Metadata.Deleting
	}
	return machine == nil || machine.Metadata.UID != instance.Controller.UID || machine.Metadata.Deleting
}
