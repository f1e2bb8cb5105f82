package windows

import (
	"context"

	"calico-cni/windows/hns"
)

// steady is a service whose lists can be relied on. A list is made of many
// calls, and fails if one of its objects is deleted meanwhile: DEL takes no
// lock. It is then made again.
type steady struct{ hns.Service }

const listTries = 10

func repeated[T any](ctx context.Context, list func(context.Context) ([]T, error)) (objects []T, err error) {
	for range listTries {
		if objects, err = list(ctx); err == nil || !hns.IsNotFound(err) {
			break
		}
	}
	return objects, err
}

// Networks implements hns.Service.
func (s steady) Networks(ctx context.Context) ([]hns.Network, error) {
	return repeated(ctx, s.Service.Networks)
}

// Endpoints implements hns.Service.
func (s steady) Endpoints(ctx context.Context) ([]hns.Endpoint, error) {
	return repeated(ctx, s.Service.Endpoints)
}

// EndpointsOfNetwork implements hns.Service.
func (s steady) EndpointsOfNetwork(ctx context.Context, id string) ([]hns.Endpoint, error) {
	return repeated(ctx, func(ctx context.Context) ([]hns.Endpoint, error) { return s.Service.EndpointsOfNetwork(ctx, id) })
}

// EndpointsByName implements hns.Service.
func (s steady) EndpointsByName(ctx context.Context, name string) ([]hns.Endpoint, error) {
	return repeated(ctx, func(ctx context.Context) ([]hns.Endpoint, error) { return s.Service.EndpointsByName(ctx, name) })
}

// Namespaces implements hns.Service.
func (s steady) Namespaces(ctx context.Context) ([]hns.Namespace, error) {
	return repeated(ctx, s.Service.Namespaces)
}
