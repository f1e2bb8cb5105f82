package hnssim

import (
	"context"
	"encoding/json"

	"calico-cni/windows/hns"
)

// Service is the door for Go: it makes the calls that hcsshim makes for each
// operation.
type Service struct{ engine *Engine }

// Service returns the door for HNS.
func (e *Engine) Service() *Service { return &Service{e} }

var _ hns.Service = (*Service)(nil)

// operation logs one operation at the plugin's interface.
func (s *Service) operation(name string) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.operations = append(s.engine.operations, name)
}

func query(filter map[string]string) string {
	q := map[string]any{"SchemaVersion": hns.Schema2()}
	if len(filter) > 0 {
		body, _ := json.Marshal(filter) // texts always encode
		q["Filter"] = string(body)
	}
	body, _ := json.Marshal(q)
	return string(body)
}

func read[T any](ctx context.Context, e *Engine, kind Kind, id string) (object T, err error) {
	if err := e.Open(ctx, kind, id); err != nil {
		return object, err
	}
	document, err := e.Query(ctx, kind, id)
	if err != nil {
		return object, err
	}
	return object, json.Unmarshal([]byte(document), &object)
}

func list[T any](ctx context.Context, e *Engine, kind Kind, filter map[string]string) ([]T, error) {
	ids, err := e.Enumerate(ctx, kind, query(filter))
	if err != nil {
		return nil, err
	}
	var objects []T
	for _, id := range ids {
		object, err := read[T](ctx, e, kind, id)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// one is a look-up by id: like hcsshim's it lists with a filter.
func one[T any](ctx context.Context, e *Engine, kind Kind, id string, missing hns.Code) (object T, err error) {
	objects, err := list[T](ctx, e, kind, map[string]string{"ID": id})
	if err != nil {
		return object, err
	}
	if len(objects) == 0 {
		return object, &hns.Error{Call: "look-up of " + string(kind) + " " + id, Code: missing}
	}
	return objects[0], nil
}

func create[T any](ctx context.Context, e *Engine, kind Kind, parent string, object T) (made T, err error) {
	document, err := json.Marshal(object)
	if err != nil {
		return made, err
	}
	id, err := e.Create(ctx, kind, parent, string(document))
	if err != nil {
		return made, err
	}
	created, err := e.Query(ctx, kind, id)
	if err != nil {
		return made, err
	}
	return made, json.Unmarshal([]byte(created), &made)
}

func (s *Service) modify(ctx context.Context, kind Kind, id, resource, request string, settings any) error {
	document, err := json.Marshal(map[string]any{"ResourceType": resource, "RequestType": request, "Settings": settings})
	if err != nil {
		return err
	}
	if err := s.engine.Open(ctx, kind, id); err != nil {
		return err
	}
	return s.engine.Modify(ctx, kind, id, string(document))
}

// Version implements hns.Service.
func (s *Service) Version(ctx context.Context) (hns.Version, error) {
	s.operation("Version")
	return s.engine.GlobalVersion(ctx)
}

// Networks implements hns.Service.
func (s *Service) Networks(ctx context.Context) ([]hns.Network, error) {
	s.operation("Networks")
	return list[hns.Network](ctx, s.engine, Network, nil)
}

// CreateNetwork implements hns.Service.
func (s *Service) CreateNetwork(ctx context.Context, n hns.Network) (hns.Network, error) {
	s.operation("CreateNetwork")
	return create(ctx, s.engine, Network, "", n)
}

// AddNetworkPolicy implements hns.Service.
func (s *Service) AddNetworkPolicy(ctx context.Context, id string, p hns.Policy) error {
	s.operation("AddNetworkPolicy")
	return s.modify(ctx, Network, id, "Policy", "Add", map[string]any{"Policies": []hns.Policy{p}})
}

// DeleteNetwork implements hns.Service.
func (s *Service) DeleteNetwork(ctx context.Context, id string) error {
	s.operation("DeleteNetwork")
	return s.engine.Delete(ctx, Network, id)
}

// Endpoints implements hns.Service.
func (s *Service) Endpoints(ctx context.Context) ([]hns.Endpoint, error) {
	s.operation("Endpoints")
	return list[hns.Endpoint](ctx, s.engine, Endpoint, nil)
}

// EndpointsOfNetwork implements hns.Service.
func (s *Service) EndpointsOfNetwork(ctx context.Context, id string) ([]hns.Endpoint, error) {
	s.operation("EndpointsOfNetwork")
	return list[hns.Endpoint](ctx, s.engine, Endpoint, map[string]string{"VirtualNetwork": id})
}

// EndpointsByName implements hns.Service.
func (s *Service) EndpointsByName(ctx context.Context, name string) ([]hns.Endpoint, error) {
	s.operation("EndpointsByName")
	return list[hns.Endpoint](ctx, s.engine, Endpoint, map[string]string{"Name": name})
}

// EndpointByID implements hns.Service.
func (s *Service) EndpointByID(ctx context.Context, id string) (hns.Endpoint, error) {
	s.operation("EndpointByID")
	return one[hns.Endpoint](ctx, s.engine, Endpoint, id, hns.EndpointNotFound)
}

// CreateEndpoint implements hns.Service.
func (s *Service) CreateEndpoint(ctx context.Context, ep hns.Endpoint) (hns.Endpoint, error) {
	s.operation("CreateEndpoint")
	if err := s.engine.Open(ctx, Network, ep.HostComputeNetwork); err != nil {
		return hns.Endpoint{}, err
	}
	return create(ctx, s.engine, Endpoint, ep.HostComputeNetwork, ep)
}

// UpdateEndpointPolicies implements hns.Service.
func (s *Service) UpdateEndpointPolicies(ctx context.Context, id string, policies []hns.Policy) error {
	s.operation("UpdateEndpointPolicies")
	return s.modify(ctx, Endpoint, id, "Policy", "Update", map[string]any{"Policies": policies})
}

// DeleteEndpoint implements hns.Service.
func (s *Service) DeleteEndpoint(ctx context.Context, id string) error {
	s.operation("DeleteEndpoint")
	return s.engine.Delete(ctx, Endpoint, id)
}

// Namespaces implements hns.Service.
func (s *Service) Namespaces(ctx context.Context) ([]hns.Namespace, error) {
	s.operation("Namespaces")
	return list[hns.Namespace](ctx, s.engine, Namespace, nil)
}

// NamespaceByID implements hns.Service.
func (s *Service) NamespaceByID(ctx context.Context, id string) (hns.Namespace, error) {
	s.operation("NamespaceByID")
	return one[hns.Namespace](ctx, s.engine, Namespace, id, hns.ElementNotFound)
}

// CreateNamespace implements hns.Service.
func (s *Service) CreateNamespace(ctx context.Context, n hns.Namespace) (hns.Namespace, error) {
	s.operation("CreateNamespace")
	return create(ctx, s.engine, Namespace, "", n)
}

// Attach implements hns.Service.
func (s *Service) Attach(ctx context.Context, namespaceID, endpointID string) error {
	s.operation("Attach")
	return s.modify(ctx, Namespace, namespaceID, hns.ResourceEndpoint, "Add", map[string]string{"EndpointId": endpointID})
}

// Detach implements hns.Service.
func (s *Service) Detach(ctx context.Context, namespaceID, endpointID string) error {
	s.operation("Detach")
	return s.modify(ctx, Namespace, namespaceID, hns.ResourceEndpoint, "Remove", map[string]string{"EndpointId": endpointID})
}
