package windows

import (
	"context"
	"errors"
	"slices"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
	"calico-cni/windows/hns"
)

// Delete removes the container's endpoint (Windows data plane contract 9).
// Networks and the host's endpoints stay, also after the last pod.
func (d *Dataplane) Delete(ctx context.Context, r dataplane.Removal) error {
	endpoints, err := d.ofContainer(ctx, r.Attachment)
	if err != nil {
		return err
	}
	var failures []error
	for _, endpoint := range endpoints {
		failures = append(failures, d.removeEndpoint(ctx, endpoint))
	}
	return errors.Join(failures...)
}

// ofContainer finds the container's endpoints. The name alone is no proof: it
// may be another container's on a network that is not ours.
func (d *Dataplane) ofContainer(ctx context.Context, a workload.Attachment) ([]hns.Endpoint, error) {
	name := d.endpointName(a.ContainerID)
	endpoints, err := d.Service.EndpointsByName(ctx, name)
	if err != nil {
		return nil, refused(err, "looking up HNS endpoint %s", name)
	}
	if len(endpoints) == 0 {
		return nil, nil
	}
	networks, err := d.ourNetworks(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(endpoints, func(e hns.Endpoint) bool { return !d.isPods(e, networks) }), nil
}

func (d *Dataplane) ourNetworks(ctx context.Context) ([]hns.Network, error) {
	networks, err := d.Service.Networks(ctx)
	if err != nil {
		return nil, refused(err, "listing the networks of HNS")
	}
	return slices.DeleteFunc(networks, func(n hns.Network) bool { return !d.isOurs(n.Name) }), nil
}

// isPods reports whether an endpoint is one that ADD makes for a container.
func (d *Dataplane) isPods(endpoint hns.Endpoint, ours []hns.Network) bool {
	_, named := d.containerOf(endpoint.Name)
	hosts := slices.ContainsFunc(ours, func(n hns.Network) bool { return hostEndpointName(n.Name) == endpoint.Name })
	return named && !hosts && endpoint.Flags&hns.FlagRemote == 0 && isOn(endpoint, ours)
}

// Owned lists the endpoints of pods (Windows data plane contract 9.2).
func (d *Dataplane) Owned(ctx context.Context) ([]dataplane.Found, error) {
	networks, err := d.ourNetworks(ctx)
	if err != nil {
		return nil, err
	}
	endpoints, err := d.Service.Endpoints(ctx)
	if err != nil {
		return nil, refused(err, "listing the endpoints of HNS")
	}
	endpoints = slices.DeleteFunc(endpoints, func(e hns.Endpoint) bool { return !d.isPods(e, networks) })
	for i, endpoint := range endpoints {
		if slices.ContainsFunc(endpoints[:i], func(e hns.Endpoint) bool { return e.Name == endpoint.Name }) {
			d.log.Warn("two endpoints have one name: DEL removes both", "endpoint", endpoint.Name, "id", endpoint.ID)
		}
	}
	return d.asFound(endpoints), nil
}

// OwnedBy lists the endpoints of one container.
func (d *Dataplane) OwnedBy(ctx context.Context, a workload.Attachment) ([]dataplane.Found, error) {
	endpoints, err := d.ofContainer(ctx, a)
	return d.asFound(endpoints), err
}

func (d *Dataplane) asFound(endpoints []hns.Endpoint) []dataplane.Found {
	var found []dataplane.Found
	for _, endpoint := range endpoints {
		containerID, _ := d.containerOf(endpoint.Name)
		found = append(found, dataplane.Found{
			HostInterface: endpoint.Name, ID: endpoint.ID, Owner: workload.OnlyInterface(d.Name, containerID),
		})
	}
	return found
}

// Remove deletes one of Owned if it still has the same name; one that is gone
// is no error.
func (d *Dataplane) Remove(ctx context.Context, f dataplane.Found) error {
	unlock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	endpoint, err := d.Service.EndpointByID(ctx, f.ID)
	if hns.IsNotFound(err) || err == nil && endpoint.Name != f.HostInterface {
		return nil
	}
	if err != nil {
		return refused(err, "looking up HNS endpoint %s", f.HostInterface)
	}
	return d.removeEndpoint(ctx, endpoint)
}
