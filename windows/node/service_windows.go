package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"github.com/Microsoft/hcsshim/hcn"

	"calico-cni/windows/hns"
)

// Service is the Host Networking Service of this host.
type Service struct{}

var _ hns.Service = Service{}

// call runs one operation. The calls of HNS cannot be interrupted: one that
// hangs is left behind when ctx ends, and dies with the process.
func call[T any](ctx context.Context, name string, do func() (T, error)) (result T, err error) {
	if err := ctx.Err(); err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	type outcome struct {
		result T
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		result, err := do()
		done <- outcome{result, err}
	}()
	select {
	case got := <-done:
		return got.result, asError(name, got.err)
	case <-ctx.Done():
		return result, fmt.Errorf("%s: HNS did not answer in time: %w", name, ctx.Err())
	}
}

func only(do func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, do() }
}

// asError gives a refusal its code: those of hcn's own look-ups the code that
// HNS has for the same.
func asError(name string, err error) error {
	if err == nil {
		return nil
	}
	refused := &hns.Error{Call: name, Text: err.Error()}
	var (
		network   hcn.NetworkNotFoundError
		endpoint  hcn.EndpointNotFoundError
		namespace hcn.NamespaceNotFoundError
		ofHNS     *hcn.HcnError
		number    syscall.Errno
	)
	switch {
	case errors.As(err, &network):
		refused.Code = hns.NetworkNotFound
	case errors.As(err, &endpoint):
		refused.Code = hns.EndpointNotFound
	case errors.As(err, &namespace):
		refused.Code = hns.ElementNotFound
	case errors.As(err, &ofHNS) && ofHNS.HcsError != nil && errors.As(ofHNS.Err, &number):
		refused.Code = hns.Code(number)
	default:
		return fmt.Errorf("%s: %w", name, err)
	}
	return refused
}

// converted is a document in the other package's type: both write the same
// JSON.
func converted[To, From any](from From) (to To, err error) {
	body, err := json.Marshal(from)
	if err != nil {
		return to, fmt.Errorf("encoding a document of HNS: %w", err)
	}
	if err := json.Unmarshal(body, &to); err != nil {
		return to, fmt.Errorf("decoding a document of HNS: %w", err)
	}
	return to, nil
}

// convertedResult converts what an operation returned.
func convertedResult[To, From any](from From, err error) (to To, _ error) {
	if err != nil {
		return to, err
	}
	return converted[To](from)
}

func query(filter map[string]string) (hcn.HostComputeQuery, error) {
	body, err := json.Marshal(filter)
	return hcn.HostComputeQuery{SchemaVersion: hcn.V2SchemaVersion(), Filter: string(body)}, err
}

// Version implements hns.Service.
func (Service) Version(ctx context.Context) (hns.Version, error) {
	globals, err := call(ctx, "GetGlobals", hcn.GetGlobals)
	if err != nil {
		return hns.Version{}, err
	}
	return hns.Version{Major: globals.Version.Major, Minor: globals.Version.Minor}, nil
}

// Networks implements hns.Service.
func (Service) Networks(ctx context.Context) ([]hns.Network, error) {
	return convertedResult[[]hns.Network](call(ctx, "ListNetworks", hcn.ListNetworks))
}

// CreateNetwork implements hns.Service.
func (Service) CreateNetwork(ctx context.Context, document hns.Network) (hns.Network, error) {
	network, err := converted[hcn.HostComputeNetwork](document)
	if err != nil {
		return hns.Network{}, err
	}
	return convertedResult[hns.Network](call(ctx, "CreateNetwork", network.Create))
}

// AddNetworkPolicy implements hns.Service.
func (Service) AddNetworkPolicy(ctx context.Context, networkID string, policy hns.Policy) error {
	added, err := converted[hcn.NetworkPolicy](policy)
	if err != nil {
		return err
	}
	network := hcn.HostComputeNetwork{Id: networkID}
	_, err = call(ctx, "AddPolicy", only(func() error {
		return network.AddPolicy(hcn.PolicyNetworkRequest{Policies: []hcn.NetworkPolicy{added}})
	}))
	return err
}

// DeleteNetwork implements hns.Service.
func (Service) DeleteNetwork(ctx context.Context, networkID string) error {
	network := hcn.HostComputeNetwork{Id: networkID}
	_, err := call(ctx, "DeleteNetwork", only(network.Delete))
	return err
}

// Endpoints implements hns.Service.
func (Service) Endpoints(ctx context.Context) ([]hns.Endpoint, error) {
	return convertedResult[[]hns.Endpoint](call(ctx, "ListEndpoints", hcn.ListEndpoints))
}

// EndpointsOfNetwork implements hns.Service.
func (Service) EndpointsOfNetwork(ctx context.Context, networkID string) ([]hns.Endpoint, error) {
	return convertedResult[[]hns.Endpoint](call(ctx, "ListEndpointsOfNetwork", func() ([]hcn.HostComputeEndpoint, error) {
		return hcn.ListEndpointsOfNetwork(networkID)
	}))
}

// EndpointsByName implements hns.Service.
func (Service) EndpointsByName(ctx context.Context, name string) ([]hns.Endpoint, error) {
	wanted, err := query(map[string]string{"Name": name})
	if err != nil {
		return nil, err
	}
	return convertedResult[[]hns.Endpoint](call(ctx, "ListEndpoints", func() ([]hcn.HostComputeEndpoint, error) {
		return hcn.ListEndpointsQuery(wanted)
	}))
}

// EndpointByID implements hns.Service.
func (Service) EndpointByID(ctx context.Context, endpointID string) (hns.Endpoint, error) {
	return convertedResult[hns.Endpoint](call(ctx, "GetEndpoint", func() (*hcn.HostComputeEndpoint, error) {
		return hcn.GetEndpointByID(endpointID)
	}))
}

// CreateEndpoint implements hns.Service.
func (Service) CreateEndpoint(ctx context.Context, document hns.Endpoint) (hns.Endpoint, error) {
	endpoint, err := converted[hcn.HostComputeEndpoint](document)
	if err != nil {
		return hns.Endpoint{}, err
	}
	return convertedResult[hns.Endpoint](call(ctx, "CreateEndpoint", endpoint.Create))
}

// UpdateEndpointPolicies implements hns.Service.
func (Service) UpdateEndpointPolicies(ctx context.Context, endpointID string, policies []hns.Policy) error {
	updated, err := converted[[]hcn.EndpointPolicy](policies)
	if err != nil {
		return err
	}
	endpoint := hcn.HostComputeEndpoint{Id: endpointID}
	_, err = call(ctx, "ApplyPolicy", only(func() error {
		return endpoint.ApplyPolicy(hcn.RequestTypeUpdate, hcn.PolicyEndpointRequest{Policies: updated})
	}))
	return err
}

// DeleteEndpoint implements hns.Service.
func (Service) DeleteEndpoint(ctx context.Context, endpointID string) error {
	endpoint := hcn.HostComputeEndpoint{Id: endpointID}
	_, err := call(ctx, "DeleteEndpoint", only(endpoint.Delete))
	return err
}

// Namespaces implements hns.Service.
func (Service) Namespaces(ctx context.Context) ([]hns.Namespace, error) {
	return convertedResult[[]hns.Namespace](call(ctx, "ListNamespaces", hcn.ListNamespaces))
}

// NamespaceByID implements hns.Service.
func (Service) NamespaceByID(ctx context.Context, namespaceID string) (hns.Namespace, error) {
	return convertedResult[hns.Namespace](call(ctx, "GetNamespace", func() (*hcn.HostComputeNamespace, error) {
		return hcn.GetNamespaceByID(namespaceID)
	}))
}

// CreateNamespace implements hns.Service.
func (Service) CreateNamespace(ctx context.Context, document hns.Namespace) (hns.Namespace, error) {
	namespace, err := converted[hcn.HostComputeNamespace](document)
	if err != nil {
		return hns.Namespace{}, err
	}
	return convertedResult[hns.Namespace](call(ctx, "CreateNamespace", namespace.Create))
}

// Attach implements hns.Service.
func (Service) Attach(ctx context.Context, namespaceID, endpointID string) error {
	_, err := call(ctx, "AddNamespaceEndpoint", only(func() error { return hcn.AddNamespaceEndpoint(namespaceID, endpointID) }))
	return err
}

// Detach implements hns.Service.
func (Service) Detach(ctx context.Context, namespaceID, endpointID string) error {
	_, err := call(ctx, "RemoveNamespaceEndpoint", only(func() error { return hcn.RemoveNamespaceEndpoint(namespaceID, endpointID) }))
	return err
}
