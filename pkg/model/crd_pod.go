package model

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// Kinds of Kubernetes itself that are read beside Calico's; nothing writes
// them. They are no part of Kinds.
const (
	KindNamespace Kind = "Namespace"
	KindPod       Kind = "Pod"
)

// The annotations of a pod that stand for its endpoint (datastore contract
// 4.11).
const (
	AnnotationPodIP       = "cni.projectcalico.org/podIP"
	AnnotationPodIPs      = "cni.projectcalico.org/podIPs"
	AnnotationContainerID = "cni.projectcalico.org/containerID"

	annotationAmazonPodIPs = "vpc.amazonaws.com/pod-ips"
)

// Namespace is a namespace of Kubernetes: its labels and annotations.
type Namespace struct{ Metadata Metadata }

// UnmarshalJSON reads a core Namespace.
func (n *Namespace) UnmarshalJSON(data []byte) error {
	metadata, err := decodeMetadata(data)
	if err != nil {
		return err
	}
	n.Metadata = metadata
	n.Metadata.unknown = nil
	return nil
}

// Pod is what the plugins need of a pod of Kubernetes.
type Pod struct {
	Metadata       Metadata
	Node           string
	ServiceAccount string
	HostNetwork    bool
	// Controller is the object that made the pod, if one did.
	Controller OwnerReference
	// Ports are those that have a name or a host port.
	Ports []EndpointPort
	// Networks are the pod's addresses, /32 and /128; none once it is finished.
	Networks []string
}

// corePod is what is read of a pod's document.
type corePod struct {
	Metadata Metadata `json:"metadata"`
	Spec     struct {
		NodeName           string          `json:"nodeName"`
		ServiceAccountName string          `json:"serviceAccountName"`
		HostNetwork        bool            `json:"hostNetwork"`
		Containers         []coreContainer `json:"containers"`
		InitContainers     []coreContainer `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Phase  string `json:"phase"`
		PodIP  string `json:"podIP"`
		PodIPs []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
	} `json:"status"`
}

type coreContainer struct {
	Ports []struct {
		Name          string `json:"name"`
		Protocol      string `json:"protocol"`
		ContainerPort uint16 `json:"containerPort"`
		HostPort      uint16 `json:"hostPort"`
		HostIP        string `json:"hostIP"`
	} `json:"ports"`
}

// UnmarshalJSON reads a core Pod.
func (p *Pod) UnmarshalJSON(data []byte) error {
	var core corePod
	if err := json.Unmarshal(data, &core); err != nil {
		return err
	}
	*p = Pod{
		Metadata: core.Metadata, Node: core.Spec.NodeName, ServiceAccount: core.Spec.ServiceAccountName,
		HostNetwork: core.Spec.HostNetwork, Controller: core.Metadata.controller(), Ports: core.ports(),
	}
	p.Metadata.unknown = nil
	if !core.finished() {
		p.Networks = networks(core.addresses())
	}
	return nil
}

// ports lists those of the containers, then those of the init containers.
func (p corePod) ports() []EndpointPort {
	var ports []EndpointPort
	for _, containers := range [][]coreContainer{p.Spec.Containers, p.Spec.InitContainers} {
		for _, container := range containers {
			for _, port := range container.Ports {
				if port.ContainerPort == 0 || port.Name == "" && port.HostPort == 0 {
					continue
				}
				protocol := strings.ToUpper(port.Protocol)
				if protocol == "" {
					protocol = "TCP"
				}
				ports = append(ports, EndpointPort{
					Name: port.Name, Protocol: protocol, Port: port.ContainerPort, HostPort: port.HostPort, HostIP: port.HostIP,
				})
			}
		}
	}
	return ports
}

// finished reports whether the pod has given its addresses back: DEL leaves
// the annotation of a pod that is being deleted empty.
func (p corePod) finished() bool {
	switch p.Status.Phase {
	case "Failed", "Succeeded", "Completed":
		return true
	}
	address, recorded := p.Metadata.Annotations[AnnotationPodIP]
	return p.Metadata.Deleting && recorded && address == ""
}

// addresses takes them from the first place that has any.
func (p corePod) addresses() []string {
	var status []string
	for _, ip := range p.Status.PodIPs {
		status = append(status, ip.IP)
	}
	annotations := p.Metadata.Annotations
	for _, candidate := range [][]string{
		status,
		{p.Status.PodIP},
		strings.Split(annotations[AnnotationPodIPs], ","),
		{annotations[AnnotationPodIP]},
		strings.Split(annotations[annotationAmazonPodIPs], ","),
	} {
		if strings.Join(candidate, "") != "" {
			return candidate
		}
	}
	return nil
}

// networks turns addresses, with or without a mask, into /32 and /128.
func networks(addresses []string) []string {
	var out []string
	for _, text := range addresses {
		address, _, _ := strings.Cut(strings.TrimSpace(text), "/")
		if addr, err := netip.ParseAddr(address); err == nil {
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()).String())
		}
	}
	return out
}

// IsEndpoint reports whether Calico has to do with the pod's network.
func (p *Pod) IsEndpoint() bool { return p.Node != "" && !p.HostNetwork }

// Endpoint projects the pod to its WorkloadEndpoint. Its name and the host's
// interface are derived from identities and therefore given.
func (p *Pod) Endpoint(name, hostInterface string) *WorkloadEndpoint {
	namespace := p.Metadata.Namespace
	endpoint := &WorkloadEndpoint{
		Metadata: Metadata{
			Name: name, GenerateName: p.Metadata.GenerateName, Namespace: namespace, UID: p.Metadata.UID,
			Created: p.Metadata.Created, Labels: p.endpointLabels(),
		},
		Spec: WorkloadEndpointSpec{
			Orchestrator: "k8s", Node: p.Node, Pod: p.Metadata.Name, Endpoint: "eth0",
			ContainerID:    p.Metadata.Annotations[AnnotationContainerID],
			ServiceAccount: p.ServiceAccount, IPNetworks: p.Networks, Ports: p.Ports,
			Profiles: []string{"kns." + namespace}, InterfaceName: hostInterface,
		},
	}
	if p.ServiceAccount != "" {
		endpoint.Spec.Profiles = append(endpoint.Spec.Profiles, fmt.Sprintf("ksa.%s.%s", namespace, p.ServiceAccount))
	}
	return endpoint
}

// endpointLabels are the pod's and those that are forced. A label's value has
// at most 63 characters.
func (p *Pod) endpointLabels() map[string]string {
	labels := map[string]string{}
	for name, value := range p.Metadata.Labels {
		labels[name] = value
	}
	labels["projectcalico.org/namespace"] = p.Metadata.Namespace
	labels["projectcalico.org/orchestrator"] = "k8s"
	if p.ServiceAccount != "" && len(p.ServiceAccount) < 63 {
		labels["projectcalico.org/serviceaccount"] = p.ServiceAccount
	}
	return labels
}
