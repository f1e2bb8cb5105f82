package model

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// resourceAPIVersion stands in every object of the v3 resource tree.
const resourceAPIVersion = "projectcalico.org/v3"

// Metadata is the part that all v3 resources share.
type Metadata struct {
	Name         string
	GenerateName string
	Namespace    string
	UID          string
	Labels       map[string]string
	Annotations  map[string]string
	// Created is zero in an object that is yet to be created.
	Created time.Time
	// Deleting is true once the object's deletion has been asked for.
	Deleting   bool
	Finalizers []string

	unknown Unknown
}

type metadataDocument struct {
	Name         string            `json:"name"`
	GenerateName string            `json:"generateName,omitempty"`
	Namespace    string            `json:"namespace,omitempty"`
	UID          string            `json:"uid,omitempty"`
	Created      *time.Time        `json:"creationTimestamp,omitempty"`
	Deleted      *time.Time        `json:"deletionTimestamp,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	Finalizers   []string          `json:"finalizers,omitempty"`
}

func (m Metadata) clone() Metadata {
	m.Labels = maps.Clone(m.Labels)
	m.Annotations = maps.Clone(m.Annotations)
	m.Finalizers = slices.Clone(m.Finalizers)
	return m
}

// MarshalJSON writes the metadata's wire form. Objects being deleted are never
// written by the plugins, so a deletion time is not written either.
func (m Metadata) MarshalJSON() ([]byte, error) {
	return encodeKeeping(metadataDocument{
		Name: m.Name, GenerateName: m.GenerateName, Namespace: m.Namespace, UID: m.UID,
		Created: timeOrNil(m.Created), Labels: m.Labels, Annotations: m.Annotations, Finalizers: m.Finalizers,
	}, m.unknown)
}

// UnmarshalJSON reads the metadata's wire form.
func (m *Metadata) UnmarshalJSON(data []byte) error {
	var doc metadataDocument
	unknown, err := decodeKeeping(data, &doc)
	if err != nil {
		return err
	}
	// An old writer may have stored a revision, which means nothing later.
	delete(unknown, "resourceVersion")
	*m = Metadata{
		Name: doc.Name, GenerateName: doc.GenerateName, Namespace: doc.Namespace, UID: doc.UID,
		Labels: doc.Labels, Annotations: doc.Annotations, Deleting: doc.Deleted != nil,
		Finalizers: doc.Finalizers, unknown: unknown,
	}
	if doc.Created != nil {
		m.Created = *doc.Created
	}
	return nil
}

// envelope is the outer form of every v3 resource.
type envelope struct {
	Kind       Kind            `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Metadata   Metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"`
}

func encodeResource(kind Kind, metadata Metadata, spec any, specUnknown, unknown Unknown) ([]byte, error) {
	body, err := encodeKeeping(spec, specUnknown)
	if err != nil {
		return nil, err
	}
	return encodeKeeping(envelope{Kind: kind, APIVersion: resourceAPIVersion, Metadata: metadata, Spec: body}, unknown)
}

// decodeResource fills spec and returns the rest of the document.
func decodeResource(data []byte, spec any) (metadata Metadata, specUnknown, unknown Unknown, err error) {
	var doc envelope
	if unknown, err = decodeKeeping(data, &doc); err != nil {
		return Metadata{}, nil, nil, err
	}
	if len(doc.Spec) > 0 {
		if specUnknown, err = decodeKeeping(doc.Spec, spec); err != nil {
			return Metadata{}, nil, nil, err
		}
	}
	return doc.Metadata, specUnknown, unknown, nil
}

// metadataOf is nil for whatever is no v3 resource.
func metadataOf(value any) *Metadata {
	switch v := value.(type) {
	case *IPPool:
		return &v.Metadata
	case *IPReservation:
		return &v.Metadata
	case *Node:
		return &v.Metadata
	case *ClusterInformation:
		return &v.Metadata
	case *Profile:
		return &v.Metadata
	case *WorkloadEndpoint:
		return &v.Metadata
	}
	return nil
}

func newResource(kind Kind) json.Unmarshaler {
	switch kind {
	case KindIPPool:
		return &IPPool{}
	case KindIPReservation:
		return &IPReservation{}
	case KindNode:
		return &Node{}
	case KindClusterInformation:
		return &ClusterInformation{}
	case KindProfile:
		return &Profile{}
	case KindWorkloadEndpoint:
		return &WorkloadEndpoint{}
	case KindNamespace:
		return &Namespace{}
	case KindPod:
		return &Pod{}
	case KindVirtualMachine:
		return &VirtualMachine{}
	case KindVirtualMachineInstance:
		return &VirtualMachineInstance{}
	case KindIPAMConfiguration:
		return &IPAMConfiguration{}
	}
	return nil
}
