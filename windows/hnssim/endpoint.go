package hnssim

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/windows/hns"
)

func (e *Engine) createEndpoint(parent, document string) (string, error) {
	const call = "CreateEndpoint"
	ep := &endpoint{}
	if err := json.Unmarshal([]byte(document), &ep.Endpoint); err != nil || ep.SchemaVersion.Major != 2 {
		return "", fail(call, hns.InvalidJSON, "%s", document)
	}
	n := e.findNetwork(parent)
	if n == nil {
		return "", fail(call, hns.NetworkNotFound, "%s", parent)
	}
	if ep.HostComputeNamespace != "" {
		return "", fail(call, hns.RequestUnsupported, "HostComputeNamespace at creation")
	}
	ep.HostComputeNetwork = n.ID
	if err := e.checkRemote(n, ep); err != nil {
		return "", err
	}
	if err := e.placeEndpoint(n, ep); err != nil {
		return "", err
	}
	if err := e.checkEndpointPolicies(call, n.Type, ep.Policies); err != nil {
		return "", err
	}
	if first(e.endpoints, func(o *endpoint) bool { return o.Name == ep.Name }) != nil {
		e.finding("a second endpoint has the name %s", ep.Name)
	}
	ep.ID = newID()
	e.endpoints = append(e.endpoints, ep)
	return ep.ID, nil
}

// checkRemote holds remote endpoints to be what another node's are.
func (e *Engine) checkRemote(n *network, ep *endpoint) error {
	const call = "CreateEndpoint"
	if ep.Flags&hns.FlagRemote == 0 {
		return nil
	}
	provided := slices.ContainsFunc(ep.Policies, func(p hns.Policy) bool { return strings.EqualFold(p.Type, hns.PolicyProviderAddress) })
	if n.Type != hns.Overlay || ep.MACAddress == "" || !provided {
		return fail(call, hns.RemoteEndpoint, "a remote endpoint needs an Overlay network, a MAC and a ProviderAddress")
	}
	return nil
}

// placeEndpoint checks addresses and MAC, and fills in what is not given.
func (e *Engine) placeEndpoint(n *network, ep *endpoint) error {
	const call = "CreateEndpoint"
	if len(ep.IPConfigurations) == 0 {
		ep.IPConfigurations = []hns.IPConfiguration{{IPAddress: e.freeAddress(n).String()}}
	}
	for i, configuration := range ep.IPConfigurations {
		s, prefix, err := subnetFor(n, configuration.IPAddress)
		if err != nil {
			return err
		}
		if ep.IPConfigurations[i].PrefixLength == 0 {
			ep.IPConfigurations[i].PrefixLength = uint8(prefix.Bits())
		}
		if len(ep.Routes) == 0 {
			ep.Routes = []hns.Route{{NextHop: gatewayOf(s), DestinationPrefix: "0.0.0.0/0"}}
		}
		if e.using(n, configuration.IPAddress) != nil {
			return fail(call, hns.ObjectExists, "address %s", configuration.IPAddress)
		}
	}
	if ep.MACAddress == "" {
		ep.MACAddress = e.freeMAC(n)
	}
	if e.withMAC(n, ep.MACAddress) {
		return fail(call, hns.ObjectExists, "MAC %s", ep.MACAddress)
	}
	return nil
}

// subnetFor finds the subnet of an address that an endpoint may have.
func subnetFor(n *network, text string) (hns.Subnet, netip.Prefix, error) {
	const call = "CreateEndpoint"
	address, err := netip.ParseAddr(text)
	for _, s := range subnetsOf(n.Network) {
		prefix, parseErr := netip.ParsePrefix(s.IPAddressPrefix)
		if err != nil || parseErr != nil || !prefix.Contains(address) {
			continue
		}
		if address == prefix.Addr() || address == broadcast(prefix) || text == gatewayOf(s) {
			return s, prefix, fail(call, hns.AddressReserved, "%s", text)
		}
		return s, prefix, nil
	}
	return hns.Subnet{}, netip.Prefix{}, fail(call, hns.AddressOutsideSubnets, "%q", text)
}

func broadcast(prefix netip.Prefix) netip.Addr {
	octets := prefix.Addr().As4()
	for bit := prefix.Bits(); bit < 32; bit++ {
		octets[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(octets)
}

func (e *Engine) on(n *network) []*endpoint {
	return slices.DeleteFunc(slices.Clone(e.endpoints), func(ep *endpoint) bool { return !hns.SameID(ep.HostComputeNetwork, n.ID) })
}

func (e *Engine) using(n *network, address string) *endpoint {
	return first(e.on(n), func(ep *endpoint) bool {
		return slices.ContainsFunc(ep.IPConfigurations, func(c hns.IPConfiguration) bool { return c.IPAddress == address })
	})
}

func (e *Engine) withMAC(n *network, mac string) bool {
	return first(e.on(n), func(ep *endpoint) bool { return strings.EqualFold(ep.MACAddress, mac) }) != nil
}

func (e *Engine) freeAddress(n *network) netip.Addr {
	for _, s := range subnetsOf(n.Network) {
		prefix, err := netip.ParsePrefix(s.IPAddressPrefix)
		if err != nil {
			continue
		}
		for address := prefix.Addr().Next(); prefix.Contains(address); address = address.Next() {
			if _, _, err := subnetFor(n, address.String()); err == nil && e.using(n, address.String()) == nil {
				return address
			}
		}
	}
	return netip.Addr{}
}

func (e *Engine) freeMAC(n *network) string {
	for i := 0; ; i++ {
		if mac := fmt.Sprintf("00-15-5D-F0-%02X-%02X", i>>8, i&0xff); !e.withMAC(n, mac) {
			return mac
		}
	}
}

func (e *Engine) showEndpoint(ep *endpoint) hns.Endpoint {
	shown := ep.Endpoint
	shown.ID = e.spelled(ep.ID)
	shown.HostComputeNetwork = e.spelled(ep.HostComputeNetwork)
	shown.HostComputeNamespace = e.spelled(ep.HostComputeNamespace)
	if shown.HostComputeNamespace == "" {
		shown.HostComputeNamespace = "00000000-0000-0000-0000-000000000000"
	}
	return shown
}

// modifyEndpoint changes policies: Update replaces those of the types it names.
func (e *Engine) modifyEndpoint(ep *endpoint, request modification) error {
	const call = "ModifyEndpoint"
	if request.ResourceType != "Policy" {
		return fail(call, hns.RequestUnsupported, "resource %q", request.ResourceType)
	}
	policies, err := policiesOf(call, request)
	if err != nil {
		return err
	}
	if err := e.checkEndpointPolicies(call, e.findNetwork(ep.HostComputeNetwork).Type, policies); err != nil {
		return err
	}
	ep.Policies = changed(ep.Policies, policies, request.RequestType)
	return nil
}

func (e *Engine) deleteEndpoint(ep *endpoint) {
	e.detach(ep)
	e.endpoints = without(e.endpoints, ep)
}
