package plugin

import (
	"net"
	"net/netip"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/ipamplugin"
)

// addressesOf are the addresses of an IPAM result, in its order.
func addressesOf(result *types100.Result) []netip.Addr {
	var addresses []netip.Addr
	for _, ip := range result.IPs {
		if addr, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addresses = append(addresses, addr.Unmap())
		}
	}
	return addresses
}

// The host end comes first in our interfaces, the pod's end second.
const podInterface = 1

// result is ADD's result (network plugin contract 7): addresses as /32 and
// /128 on the pod's interface, without gateways, and the IPAM plugin's routes.
func (a *addition) result(assigned *types100.Result, link dataplane.Link) *types100.Result {
	out := a.resultOf(addressesOf(assigned), link.HostInterface, a.Call.IfName, link.MAC, assigned)
	return a.asOnWindows(out, link.Prefixes, link.ReportedMAC)
}

func (a *addition) resultOf(addresses []netip.Addr, host, pod, mac string, assigned *types100.Result) *types100.Result {
	out := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{{Name: host}, {Name: pod, Mac: mac, Mtu: a.mtu, Sandbox: a.Call.Netns}},
	}
	for _, address := range addresses {
		out.IPs = append(out.IPs, &types100.IPConfig{
			Interface: types100.Int(podInterface),
			Address:   net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())},
		})
	}
	if assigned != nil {
		out.Routes, out.DNS = assigned.Routes, assigned.DNS
	}
	return out
}

// previousResult reads prevResult; nil if we are the first of the chain.
func (a *addition) previousResult() (*types100.Result, error) {
	if a.Conf.PrevResult == nil {
		return nil, nil
	}
	return ipamplugin.Previous(a.Conf.CNIVersion, a.Conf.PrevResult)
}

// behindPrevious appends our result to that of the plugins before us.
func (a *addition) behindPrevious(own *types100.Result) *types100.Result {
	before := a.previous
	if before == nil {
		return own
	}
	shift := len(before.Interfaces)
	for _, ip := range own.IPs {
		ip.Interface = types100.Int(*ip.Interface + shift)
	}
	before.Interfaces = append(before.Interfaces, own.Interfaces...)
	before.IPs = append(before.IPs, own.IPs...)
	before.Routes = append(before.Routes, own.Routes...)
	if !own.DNS.IsEmpty() {
		before.DNS = own.DNS
	}
	return before
}
