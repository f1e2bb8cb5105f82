package workload

import (
	"crypto/sha1"
	"encoding/hex"

	"calico-cni/pkg/cnierr"
)

// Orchestrators, as the datastore spells them.
const (
	OrchestratorKubernetes = "k8s"
	OrchestratorCNI        = "cni"
)

// DefaultNamespace holds the endpoints that are outside Kubernetes.
const DefaultNamespace = "default"

// Identity says which workload of the cluster an attachment belongs to.
type Identity struct {
	Node         string
	Orchestrator string
	Namespace    string
	// Pod is empty outside Kubernetes.
	Pod        string
	Attachment Attachment
}

// NewIdentity identifies the workload. Both pod arguments select Kubernetes.
// Elsewhere namespace, if not empty, wins over CNI_TEST_NAMESPACE; it comes
// from the configuration (Mesos labels).
func NewIdentity(node string, attachment Attachment, args Args, namespace string) Identity {
	id := Identity{Node: node, Attachment: attachment}
	if args.PodName != "" && args.PodNamespace != "" {
		id.Orchestrator = OrchestratorKubernetes
		id.Namespace = args.PodNamespace
		id.Pod = args.PodName
		return id
	}
	id.Orchestrator = OrchestratorCNI
	switch {
	case namespace != "":
		id.Namespace = namespace
	case args.TestNamespace != "":
		id.Namespace = args.TestNamespace
	default:
		id.Namespace = DefaultNamespace
	}
	return id
}

// IsKubernetes reports whether the workload is a pod of Kubernetes.
func (id Identity) IsKubernetes() bool { return id.Orchestrator == OrchestratorKubernetes }

// third is the segment of the endpoint name that names the workload.
func (id Identity) third() string {
	if id.IsKubernetes() {
		return id.Pod
	}
	return id.Attachment.ContainerID
}

// segments are the parts of the endpoint name. Each error has the code of the
// place its value comes from.
func (id Identity) segments() []segment {
	third := segment{"container id", id.Attachment.ContainerID, cnierr.InvalidEnvironment}
	if id.IsKubernetes() {
		third = segment{"pod name", id.Pod, cnierr.InvalidEnvironment}
	}
	return []segment{
		{"node name", id.Node, cnierr.InvalidConfiguration},
		{"orchestrator", id.Orchestrator, cnierr.Internal},
		third,
		{"interface name", id.Attachment.IfName, cnierr.InvalidEnvironment},
	}
}

// EndpointName is the name of the WorkloadEndpoint (datastore contract 6.1).
func (id Identity) EndpointName() (string, error) { return joinName(id.segments()) }

// EndpointPrefix begins the names of all endpoints of this workload. Names of
// other workloads may begin with it too (pod my: n1-k8s-my-, pod my-1:
// n1-k8s-my--1-eth0); SameWorkload tells them apart.
func (id Identity) EndpointPrefix() (string, error) { return joinPrefix(id.segments()[:3]) }

// SameWorkload reports whether an endpoint name belongs to this workload,
// whatever its interface.
func (id Identity) SameWorkload(endpointName string) bool {
	node, orchestrator, third, _, err := SplitEndpointName(endpointName)
	return err == nil && node == id.Node && orchestrator == id.Orchestrator && third == id.third()
}

// HandleID is the id under which IPAM books the container's addresses. The
// interface is no part of it: all interfaces of a sandbox share it.
func (id Identity) HandleID() string { return id.Attachment.Network + "." + id.Attachment.ContainerID }

// LegacyHandleID is the handle id that Calico before v3 used.
func (id Identity) LegacyHandleID() string {
	if id.IsKubernetes() {
		return id.Namespace + "." + id.Pod
	}
	return id.Attachment.ContainerID
}

// digits is how many characters of a digest or container id follow the prefix:
// with the default prefix of four the kernel's limit of 15 is reached.
const digits = 11

// HostInterface is the name of the host's end of the first interface
// (datastore contract 6.2). Only Kubernetes uses the prefix given.
func (id Identity) HostInterface(prefix string) string {
	if id.IsKubernetes() {
		return prefix + digest(id.Namespace+"."+id.Pod)
	}
	return DefaultInterfacePrefix + id.Attachment.ContainerID[:min(digits, len(id.Attachment.ContainerID))]
}

// SecondHostInterface is the name of the host's end if HostInterface is held
// by another interface of the same sandbox, or by a stranger (Linux data plane
// contract 9.1, name S).
func (id Identity) SecondHostInterface(prefix string) string {
	if id.IsKubernetes() {
		return prefix + digest(id.Namespace+"."+id.Pod+"."+id.Attachment.IfName)
	}
	return DefaultInterfacePrefix + digest(id.Attachment.ContainerID+"."+id.Attachment.IfName)
}

// digest is SHA-1 because the policy agent computes the same names.
func digest(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])[:digits]
}
