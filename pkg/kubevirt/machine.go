package kubevirt

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

const (
	// podPrefix begins the names of the pods that virtual machines run in.
	podPrefix = "virt-launcher-"
	// labelMigration is the label of a pod that a running machine is about to
	// move to. Its value is the UID of the migration.
	labelMigration = "kubevirt.io/migrationJobUID"
	// longestHandle is how long a handle id may be before it is hashed.
	longestHandle = 128

	attributeInstanceUID  = "vmi-uid"
	attributeMachineUID   = "vm-uid"
	attributeMigrationUID = "vmim-uid"
)

// Candidate reports whether a pod of this name may run a virtual machine. All
// others cost nothing.
func Candidate(pod string) bool { return strings.HasPrefix(pod, podPrefix) }

// InstanceOf names the instance of a virtual machine that made the pod.
func InstanceOf(pod *model.Pod) (name string, ok bool) {
	if pod == nil || !Candidate(pod.Metadata.Name) || !isKind(pod.Controller, model.KindVirtualMachineInstance) {
		return "", false
	}
	return pod.Controller.Name, true
}

func isKind(owner model.OwnerReference, kind model.Kind) bool {
	return owner.APIVersion == model.KubeVirtVersion && owner.Kind == kind
}

// HandleID is the handle that holds a machine's addresses (datastore contract
// 6.3). Ids that would be too long are hashed; the hash is whole unless the
// network's name is long as well.
func HandleID(network, namespace, instance string) string {
	prefix := network + ".vmi."
	id := prefix + namespace + "." + instance
	if len(id) <= longestHandle {
		return id
	}
	sum := sha256.Sum256([]byte(namespace + "." + instance))
	hashed := prefix + "_" + base64.RawURLEncoding.EncodeToString(sum[:])
	return hashed[:min(len(hashed), longestHandle)]
}

// Machine is a virtual machine that a pod runs, or is to run.
type Machine struct {
	// HandleID holds the machine's addresses, whatever its pod.
	HandleID string
	// Attributes are those of an owner beyond any pod's.
	Attributes map[string]string

	namespace, name, pod string
	// migrates: the pod was made for the machine to move to.
	migrates bool
}

// Launch is what is known of a pod that is being connected.
type Launch struct {
	Network string
	Pod     *model.Pod
	// Instance is the one that has the name which the pod's owner had; nil if
	// there is none.
	Instance *model.VirtualMachineInstance
	// Persistence is what the cluster's configuration says of it.
	Persistence string
}

// Recognize returns the machine whose addresses a pod gets; nil if the pod is
// one like any other. The target of a migration must not be that: it would get
// other addresses than the machine has.
func Recognize(l Launch) (*Machine, error) {
	name, ok := InstanceOf(l.Pod)
	if !ok {
		return nil, nil
	}
	pod := l.Pod.Metadata
	migration := pod.Labels[labelMigration]
	live := l.Instance != nil && l.Instance.Metadata.UID == l.Pod.Controller.UID
	switch {
	case Disabled(l.Persistence) && migration != "":
		return nil, cnierr.New(cnierr.InvalidConfiguration,
			"pod %s/%s is the target of a live migration, but the IPAM configuration has kubeVirtVMAddressPersistence %q, so it cannot have the addresses of virtual machine %s: set it to \"Enabled\" and migrate again",
			pod.Namespace, pod.Name, l.Persistence, name)
	case Disabled(l.Persistence):
		return nil, nil
	case !live && migration != "":
		return nil, cnierr.New(cnierr.TryAgainLater,
			"pod %s/%s is the target of a live migration of VirtualMachineInstance %s with UID %s, which is gone: delete the pod",
			pod.Namespace, pod.Name, name, l.Pod.Controller.UID)
	case !live:
		return nil, nil
	}
	return newMachine(l, name, migration), nil
}

// Disabled reports whether virtual machines do not keep their addresses.
// Everything but that word means that they do (IPAM contract 9).
func Disabled(persistence string) bool { return persistence == "Disabled" }

func newMachine(l Launch, name, migration string) *Machine {
	namespace := l.Pod.Metadata.Namespace
	m := &Machine{
		HandleID:  HandleID(l.Network, namespace, name),
		namespace: namespace, name: name, pod: l.Pod.Metadata.Name, migrates: migration != "",
		Attributes: map[string]string{ipam.AttributeInstance: name, attributeInstanceUID: l.Instance.Metadata.UID},
	}
	if isKind(l.Instance.Controller, model.KindVirtualMachine) {
		m.Attributes[attributeMachineUID] = l.Instance.Controller.UID
	}
	if migration != "" {
		m.Attributes[attributeMigrationUID] = migration
	}
	return m
}

// Owner is the owner map of the machine in its pod.
func (m *Machine) Owner(ofPod map[string]string) map[string]string {
	owner := maps.Clone(ofPod)
	maps.Copy(owner, m.Attributes)
	return owner
}

func (m *Machine) String() string { return "virtual machine " + m.namespace + "/" + m.name }
