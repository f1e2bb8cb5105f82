package model

import "encoding/json"

// ClusterInformationName is the name of the one ClusterInformation.
const ClusterInformationName = "default"

// ClusterInformation says whether the cluster's data may be used (datastore
// contract 4.8).
type ClusterInformation struct {
	Metadata Metadata
	GUID     string
	Type     string
	Version  string
	// Ready is nil if the object does not say.
	Ready *bool

	unknown, specUnknown Unknown
}

type clusterInformationSpec struct {
	GUID    string `json:"clusterGUID,omitempty"`
	Type    string `json:"clusterType,omitempty"`
	Version string `json:"calicoVersion,omitempty"`
	Ready   *bool  `json:"datastoreReady,omitempty"`
}

// MarshalJSON writes the object's wire form.
func (c *ClusterInformation) MarshalJSON() ([]byte, error) {
	return encodeResource(KindClusterInformation, c.Metadata, clusterInformationSpec{
		GUID: c.GUID, Type: c.Type, Version: c.Version, Ready: c.Ready,
	}, c.specUnknown, c.unknown)
}

// UnmarshalJSON reads the object's wire form.
func (c *ClusterInformation) UnmarshalJSON(data []byte) error {
	var spec clusterInformationSpec
	metadata, specUnknown, unknown, err := decodeResource(data, &spec)
	if err != nil {
		return err
	}
	*c = ClusterInformation{Metadata: metadata, GUID: spec.GUID, Type: spec.Type, Version: spec.Version,
		Ready: spec.Ready, unknown: unknown, specUnknown: specUnknown}
	return nil
}

// Node is a host of the cluster; only its labels matter to the plugins.
type Node struct {
	Metadata Metadata

	unknown, specUnknown Unknown
}

// MarshalJSON writes the node's wire form.
func (n *Node) MarshalJSON() ([]byte, error) {
	return encodeResource(KindNode, n.Metadata, struct{}{}, n.specUnknown, n.unknown)
}

// UnmarshalJSON reads the node's wire form.
func (n *Node) UnmarshalJSON(data []byte) error {
	metadata, specUnknown, unknown, err := decodeResource(data, &struct{}{})
	if err != nil {
		return err
	}
	*n = Node{Metadata: metadata, unknown: unknown, specUnknown: specUnknown}
	return nil
}

// Profile holds the rules of a network whose configuration names no policy
// (datastore contract 4.9). It is created once and never changed.
type Profile struct {
	Metadata      Metadata
	LabelsToApply map[string]string

	unknown, specUnknown Unknown
}

type profileSpec struct {
	LabelsToApply map[string]string `json:"labelsToApply,omitempty"`
}

// NewProfile returns the profile of a network: everything out; in, everything
// under Kubernetes and else what comes from the same network.
func NewProfile(network string, kubernetes bool) *Profile {
	ingress := `[{"action":"Allow","source":{},"destination":{}}]`
	if !kubernetes {
		source, _ := json.Marshal("has(" + network + ")") // a string always encodes
		ingress = `[{"action":"Allow","source":{"selector":` + string(source) + `},"destination":{}}]`
	}
	return &Profile{
		Metadata:      Metadata{Name: network},
		LabelsToApply: map[string]string{network: ""},
		specUnknown: Unknown{
			"ingress": json.RawMessage(ingress),
			"egress":  json.RawMessage(`[{"action":"Allow","source":{},"destination":{}}]`),
		},
	}
}

// MarshalJSON writes the profile's wire form.
func (p *Profile) MarshalJSON() ([]byte, error) {
	return encodeResource(KindProfile, p.Metadata, profileSpec{LabelsToApply: p.LabelsToApply}, p.specUnknown, p.unknown)
}

// UnmarshalJSON reads the profile's wire form.
func (p *Profile) UnmarshalJSON(data []byte) error {
	var spec profileSpec
	metadata, specUnknown, unknown, err := decodeResource(data, &spec)
	if err != nil {
		return err
	}
	*p = Profile{Metadata: metadata, LabelsToApply: spec.LabelsToApply, unknown: unknown, specUnknown: specUnknown}
	return nil
}
