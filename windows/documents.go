package windows

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
)

const defaultRoute = "0.0.0.0/0"

// networkDocument is the network for a subnet (Windows data plane contract 4).
// No adapter, MAC pool, DNS or port is set: HNS chooses.
func (o Options) networkDocument(s subnet, vni uint32) hns.Network {
	network := hns.Network{Name: o.networkName(s), Type: o.networkType(), SchemaVersion: hns.Schema2()}
	in := hns.Subnet{
		IPAddressPrefix: s.prefix.String(),
		Routes:          []hns.Route{{NextHop: s.gateway().String(), DestinationPrefix: defaultRoute}},
	}
	if o.Overlay {
		in.Policies = []hns.Policy{policy(hns.PolicyVSID, isolation{vni})}
	}
	network.Ipams = []hns.Ipam{{Type: "Static", Subnets: []hns.Subnet{in}}}
	return network
}

func (o Options) networkType() hns.NetworkType {
	if o.Overlay {
		return hns.Overlay
	}
	return hns.L2Bridge
}

// hostEndpointDocument is the host's own endpoint: a remote one on Overlay,
// else one to be attached to the host.
func hostEndpointDocument(network hns.Network, s subnet, at management) hns.Endpoint {
	endpoint := hns.Endpoint{
		Name: hostEndpointName(network.Name), HostComputeNetwork: network.ID, SchemaVersion: hns.Schema2(),
		IPConfigurations: []hns.IPConfiguration{{IPAddress: s.hostEndpoint().String(), PrefixLength: uint8(s.prefix.Bits())}},
	}
	if network.Type == hns.Overlay {
		endpoint.MACAddress = dashed(at.nic.MAC)
		endpoint.Policies = []hns.Policy{providerAddress(at.address)}
		endpoint.Flags = hns.FlagRemote
	}
	return endpoint
}

// endpointDocument is the endpoint of a pod (Windows data plane contract 6.1).
func (o Options) endpointDocument(containerID string, network hns.Network, a address, dns dataplane.DNS, policies []hns.Policy) hns.Endpoint {
	endpoint := hns.Endpoint{
		Name: o.endpointName(containerID), HostComputeNetwork: network.ID, SchemaVersion: hns.Schema2(),
		IPConfigurations: []hns.IPConfiguration{{IPAddress: a.pod.String()}},
		DNS:              hns.DNS{Domain: dns.Domain, Search: dns.Search, ServerList: dns.Servers, Options: dns.Options},
		Routes:           []hns.Route{{NextHop: a.subnet.podGateway(o.Overlay).String(), DestinationPrefix: defaultRoute}},
		Policies:         policies,
	}
	if o.Overlay {
		endpoint.MACAddress = o.podMAC(a.pod)
	}
	return endpoint
}

// podMAC is made of the address, so that every node can tell it.
func (o Options) podMAC(pod netip.Addr) string {
	octets := pod.As4()
	return fmt.Sprintf("%s-%02x-%02x-%02x-%02x", o.MACPrefix, octets[0], octets[1], octets[2], octets[3])
}

// dashed is a MAC as HNS writes it, colons one as everybody else does.
func dashed(mac net.HardwareAddr) string {
	return strings.ToUpper(strings.ReplaceAll(mac.String(), ":", "-"))
}

func colons(mac string) string { return strings.ToLower(strings.ReplaceAll(mac, "-", ":")) }

// What documents that were read say. A document without it gives the zero
// value.

// settingsOf decodes the settings of the first policy of a type.
func settingsOf[T any](policies []hns.Policy, kind string) (settings T, ok bool) {
	for _, p := range policies {
		if strings.EqualFold(p.Type, kind) && json.Unmarshal(p.Settings, &settings) == nil {
			return settings, true
		}
	}
	return settings, false
}

// providerOf is the address that a network or an endpoint is reached at.
func providerOf(policies []hns.Policy) netip.Addr {
	settings, _ := settingsOf[provider](policies, hns.PolicyProviderAddress)
	address, _ := netip.ParseAddr(settings.ProviderAddress)
	return address
}

// subnetsOf are the ranges of a network; those that cannot be read are left out.
func subnetsOf(network hns.Network) []hns.Subnet {
	var subnets []hns.Subnet
	for _, ipam := range network.Ipams {
		subnets = append(subnets, ipam.Subnets...)
	}
	return subnets
}

func prefixesOf(network hns.Network) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, s := range subnetsOf(network) {
		if prefix, err := netip.ParsePrefix(s.IPAddressPrefix); err == nil && prefix.Addr().Is4() {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// addressOf is the first address of an endpoint.
func addressOf(endpoint hns.Endpoint) netip.Addr {
	for _, configuration := range endpoint.IPConfigurations {
		if address, err := netip.ParseAddr(configuration.IPAddress); err == nil {
			return address
		}
	}
	return netip.Addr{}
}

// describe names an endpoint for messages.
func describe(endpoint hns.Endpoint) string {
	return fmt.Sprintf("%s (%s)", endpoint.Name, addressOf(endpoint))
}
