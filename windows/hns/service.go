package hns

import (
	"context"
	"strings"
)

// Version is that of the service, which tells what it can do.
type Version struct{ Major, Minor int }

// AtLeast reports whether the version is not below another.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// Service is the Host Networking Service. Every method is one operation of the
// budget that the data plane keeps. Listing nothing is no error; an id that is
// unknown is one for which IsNotFound holds.
type Service interface {
	Version(context.Context) (Version, error)

	Networks(context.Context) ([]Network, error)
	CreateNetwork(context.Context, Network) (Network, error)
	AddNetworkPolicy(ctx context.Context, networkID string, policy Policy) error
	DeleteNetwork(ctx context.Context, networkID string) error

	Endpoints(context.Context) ([]Endpoint, error)
	EndpointsOfNetwork(ctx context.Context, networkID string) ([]Endpoint, error)
	EndpointsByName(ctx context.Context, name string) ([]Endpoint, error)
	EndpointByID(ctx context.Context, endpointID string) (Endpoint, error)
	CreateEndpoint(context.Context, Endpoint) (Endpoint, error)
	// UpdateEndpointPolicies replaces the endpoint's policies of the types
	// named, and keeps the others.
	UpdateEndpointPolicies(ctx context.Context, endpointID string, policies []Policy) error
	DeleteEndpoint(ctx context.Context, endpointID string) error

	Namespaces(context.Context) ([]Namespace, error)
	NamespaceByID(ctx context.Context, namespaceID string) (Namespace, error)
	CreateNamespace(context.Context, Namespace) (Namespace, error)
	Attach(ctx context.Context, namespaceID, endpointID string) error
	Detach(ctx context.Context, namespaceID, endpointID string) error
}

// noNamespace is what an endpoint that is attached to nothing may show.
const noNamespace = "00000000-0000-0000-0000-000000000000"

// SameID compares identifiers, which the service returns in varying case and
// runtimes write with or without braces.
func SameID(a, b string) bool { return strings.EqualFold(bare(a), bare(b)) }

func bare(id string) string { return strings.TrimSuffix(strings.TrimPrefix(id, "{"), "}") }

// Attached reports whether the endpoint names a namespace, be it one that is
// gone.
func (e Endpoint) Attached() bool {
	return e.HostComputeNamespace != "" && !SameID(e.HostComputeNamespace, noNamespace)
}

// EndpointIDs are the endpoints in the namespace.
func (n Namespace) EndpointIDs() []string {
	var ids []string
	for _, resource := range n.Resources {
		if resource.Type == ResourceEndpoint {
			ids = append(ids, resource.Data.ID)
		}
	}
	return ids
}
