package plugin

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

// reuse answers an ADD outside Kubernetes for a container that has a record
// (network plugin contract 6.3): nothing is networked and no address taken,
// unless the recorded interface is missing in the pod. done is false if the
// call must go on as a first ADD.
func (a *addition) reuse(ctx context.Context) (result *types100.Result, done bool, err error) {
	record := a.view.record
	present, err := a.dataplane.HasInterface(a.Call.Netns, a.Call.IfName)
	if err != nil {
		return nil, false, err
	}
	if record.Spec.Endpoint == a.Call.IfName && !present {
		return a.reconnect(ctx)
	}
	if lost, err := a.lostAddresses(ctx); err != nil || lost {
		return nil, false, err
	}
	err = a.write(ctx, a.joinNetwork, func() error { return nil })
	if err != nil {
		return nil, false, err
	}
	recorded := asRecord(record)
	assigned := routesTo(recorded.Addresses)
	if err := a.inSubnets(ctx, assigned); err != nil {
		return nil, false, err
	}
	out := a.resultOf(recorded.Addresses, record.Spec.InterfaceName, record.Spec.Endpoint, record.Spec.MAC, assigned)
	return a.asOnWindows(out, prefixesOf(assigned), record.Spec.MAC), true, nil
}

func (a *addition) joinNetwork(endpoint *model.WorkloadEndpoint) {
	if !slices.Contains(endpoint.Spec.Profiles, a.Conf.Name) {
		endpoint.Spec.Profiles = append(endpoint.Spec.Profiles, a.Conf.Name)
	}
}

// lostAddresses reports whether the interface in the pod has addresses that are
// not this container's any more, because a DEL was stopped after the release
// (network plugin contract 6.5). Those of a record that another network made
// hang on that one's handle.
func (a *addition) lostAddresses(ctx context.Context) (bool, error) {
	spec := a.view.record.Spec
	if spec.Endpoint != a.Call.IfName || len(spec.Profiles) == 0 || spec.Profiles[0] != a.Conf.Name || a.Conf.IPAM.Type != netconf.IPAMCalico {
		return false, nil
	}
	held, err := a.holds(ctx, a.view.asRecord().Addresses)
	return !held, err
}

// holds reports whether the container's handle holds all these addresses.
func (a *addition) holds(ctx context.Context, addresses []netip.Addr) (bool, error) {
	held, err := ipam.New(a.Store, ipam.Options{Now: a.Now, Logger: a.Log}).AddressesByHandle(ctx, a.ID.HandleID())
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return false, err
	}
	for _, address := range addresses {
		if !slices.Contains(held, address) {
			return false, nil
		}
	}
	return true, nil
}

// reconnect networks a container again with its recorded addresses, if they
// are still its own: it was restarted in a new namespace, or an ADD was killed.
func (a *addition) reconnect(ctx context.Context) (result *types100.Result, done bool, err error) {
	recorded := a.view.asRecord().Addresses
	if a.Conf.IPAM.Type != netconf.IPAMCalico || len(recorded) == 0 {
		return nil, false, nil
	}
	if held, err := a.holds(ctx, recorded); err != nil || !held {
		return nil, false, err
	}
	a.Unlock()
	a.reused = true
	result, err = a.connect(ctx, routesTo(recorded))
	return result, true, err
}

// routesTo is an IPAM result of addresses that were assigned earlier.
func routesTo(addresses []netip.Addr) *types100.Result {
	out := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for _, address := range addresses {
		ip := net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
		out.IPs = append(out.IPs, &types100.IPConfig{Address: ip})
		out.Routes = append(out.Routes, &types.Route{Dst: ip})
	}
	return out
}
