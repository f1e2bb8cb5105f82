package plugin

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/workload"
)

// takeAddresses gets the pod its addresses (network plugin contract 6.2 step
// 4): those it brings, those it wants, or any.
func (a *addition) takeAddresses(ctx context.Context, store datastore.Store) (*types100.Result, error) {
	switch {
	case a.wishes.AddressesWithoutIPAM != nil:
		own := routesTo(a.wishes.AddressesWithoutIPAM)
		own.Routes = nil // the result tells the IPAM plugin's, and there was none
		return own, nil
	case a.wishes.Addresses != nil:
		return a.takeWished(ctx)
	}
	return a.take(ctx, a.ipamCall, store)
}

// take asks the IPAM plugin. From the first try on it may hold something for
// us, also if it fails.
func (a *addition) take(ctx context.Context, call invocation.Call, store datastore.Store) (*types100.Result, error) {
	call, err := a.azureInput(call)
	if err != nil {
		return nil, err
	}
	a.taken = true
	assigned, err := a.callIPAM(ctx, &call, store)
	if err != nil {
		return nil, err
	}
	if len(assigned.IPs) == 0 {
		return nil, cnierr.New(cnierr.Unclassified, "IPAM plugin %q returned no address: check its configuration", a.Conf.IPAM.Type)
	}
	return assigned, a.rememberAzure(assigned)
}

// takeWished asks the IPAM plugin for one address after the other. If one is
// refused, undo releases those before it.
func (a *addition) takeWished(ctx context.Context) (*types100.Result, error) {
	if err := a.freeRecorded(ctx); err != nil {
		return nil, err
	}
	all := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for _, address := range a.wishes.Addresses {
		call := a.ipamCall
		call.Args = workload.AppendIP(call.Args, address)
		// Not from the batch, which is older than what was just released.
		assigned, err := a.take(ctx, call, a.Store)
		if err != nil {
			return nil, err
		}
		all.IPs = append(all.IPs, assigned.IPs...)
		all.Routes = append(all.Routes, assigned.Routes...)
		if all.DNS.IsEmpty() {
			all.DNS = assigned.DNS
		}
	}
	return all, nil
}

// freeRecorded releases what the pod's last sandbox holds: the pod wants the
// same addresses again, and that sandbox's own DEL may come later. Addresses
// are released only from that sandbox's handle, or this one's: the record may
// be older than somebody else's allocation.
func (a *addition) freeRecorded(ctx context.Context) error {
	used, err := a.hasOther(ctx, func(dataplane.Found) bool { return true })
	if err != nil || used {
		return err
	}
	recorded := a.view.asRecord()
	if err := a.freeFrom(ctx, a.ID.HandleID(), slices.Concat(recorded.Addresses, a.wishes.Addresses)); err != nil {
		return err
	}
	if recorded.ContainerID == "" || recorded.ContainerID == a.Call.ContainerID {
		return nil
	}
	last := workload.Identity{Attachment: workload.Attachment{Network: a.Conf.Name, ContainerID: recorded.ContainerID}}
	return a.freeFrom(ctx, last.HandleID(), recorded.Addresses)
}

func (a *addition) freeFrom(ctx context.Context, handle string, addresses []netip.Addr) error {
	allocator := ipam.New(a.Store, ipam.Options{Now: a.Now, Logger: a.Log})
	held, err := allocator.AddressesByHandle(ctx, handle)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return err
	}
	var releases []ipam.Release
	for _, address := range held {
		if slices.Contains(addresses, address) {
			releases = append(releases, ipam.Release{Addr: address, HandleID: handle})
		}
	}
	if len(releases) == 0 {
		return nil
	}
	_, _, err = allocator.ReleaseAddresses(ctx, releases)
	return err
}
