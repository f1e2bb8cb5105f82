package model

import "slices"

// WorkloadEndpoint records one interface of one pod (datastore contract 4.10).
type WorkloadEndpoint struct {
	Metadata Metadata
	Spec     WorkloadEndpointSpec

	unknown, specUnknown Unknown
}

// WorkloadEndpointSpec is the part that the plugins fill.
type WorkloadEndpointSpec struct {
	Orchestrator   string         `json:"orchestrator,omitempty"`
	Workload       string         `json:"workload,omitempty"`
	Node           string         `json:"node,omitempty"`
	ContainerID    string         `json:"containerID,omitempty"`
	Pod            string         `json:"pod,omitempty"`
	Endpoint       string         `json:"endpoint,omitempty"`
	ServiceAccount string         `json:"serviceAccountName,omitempty"`
	IPNetworks     []string       `json:"ipNetworks,omitempty"`
	IPNATs         []IPNAT        `json:"ipNATs,omitempty"`
	Profiles       []string       `json:"profiles,omitempty"`
	InterfaceName  string         `json:"interfaceName,omitempty"`
	MAC            string         `json:"mac,omitempty"`
	Ports          []EndpointPort `json:"ports,omitempty"`
	SpoofedSources []string       `json:"allowSpoofedSourcePrefixes,omitempty"`
}

// IPNAT maps a floating address to one of the pod's.
type IPNAT struct {
	InternalIP string `json:"internalIP"`
	ExternalIP string `json:"externalIP"`
}

// EndpointPort is a named or host port of the pod.
type EndpointPort struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Port     uint16 `json:"port"`
	HostPort uint16 `json:"hostPort"`
	HostIP   string `json:"hostIP"`
}

// Clone returns a copy that shares nothing changeable with e.
func (e *WorkloadEndpoint) Clone() *WorkloadEndpoint {
	out := *e
	out.Metadata = e.Metadata.clone()
	out.Spec.IPNetworks = slices.Clone(e.Spec.IPNetworks)
	out.Spec.IPNATs = slices.Clone(e.Spec.IPNATs)
	out.Spec.Profiles = slices.Clone(e.Spec.Profiles)
	out.Spec.Ports = slices.Clone(e.Spec.Ports)
	out.Spec.SpoofedSources = slices.Clone(e.Spec.SpoofedSources)
	return &out
}

// MarshalJSON writes the endpoint's wire form.
func (e *WorkloadEndpoint) MarshalJSON() ([]byte, error) {
	return encodeResource(KindWorkloadEndpoint, e.Metadata, e.Spec, e.specUnknown, e.unknown)
}

// UnmarshalJSON reads the endpoint's wire form.
func (e *WorkloadEndpoint) UnmarshalJSON(data []byte) error {
	var spec WorkloadEndpointSpec
	metadata, specUnknown, unknown, err := decodeResource(data, &spec)
	if err != nil {
		return err
	}
	*e = WorkloadEndpoint{Metadata: metadata, Spec: spec, unknown: unknown, specUnknown: specUnknown}
	return nil
}
