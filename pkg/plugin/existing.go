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
	err = a.write(ctx, a.joinNetwork, func() error { return nil })
	if err != nil {
		return nil, false, err
	}
	recorded := asRecord(record)
	return a.resultOf(recorded.Addresses, record.Spec.InterfaceName, record.Spec.Endpoint, record.Spec.MAC,
		routesTo(recorded.Addresses)), true, nil
}

func (a *addition) joinNetwork(endpoint *model.WorkloadEndpoint) {
	if !slices.Contains(endpoint.Spec.Profiles, a.Conf.Name) {
		endpoint.Spec.Profiles = append(endpoint.Spec.Profiles, a.Conf.Name)
	}
}

// reconnect networks a container again with its recorded addresses, if they
// are still its own: it was restarted in a new namespace, or an ADD was killed.
func (a *addition) reconnect(ctx context.Context) (result *types100.Result, done bool, err error) {
	recorded := a.view.asRecord().Addresses
	if a.Conf.IPAM.Type != netconf.IPAMCalico || len(recorded) == 0 {
		return nil, false, nil
	}
	held, err := ipam.New(a.Store, ipam.Options{Now: a.Now, Logger: a.Log}).AddressesByHandle(ctx, a.ID.HandleID())
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return nil, false, err
	}
	for _, address := range recorded {
		if !slices.Contains(held, address) {
			return nil, false, nil
		}
	}
	a.Unlock()
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
