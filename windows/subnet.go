package windows

import (
	"net/netip"

	"calico-cni/pkg/cnierr"
)

// The places in a node's subnet that are never a pod's (Windows data plane
// contract 1); the network and the broadcast address are the other two.
const (
	gatewayIndex      = 1
	hostEndpointIndex = 2
)

// subnet is the range of a node's network: a block, or the node's pod CIDR.
type subnet struct{ prefix netip.Prefix }

// at is the address with an index.
func (s subnet) at(index byte) netip.Addr {
	octets := s.prefix.Masked().Addr().As4()
	octets[3] += index
	return netip.AddrFrom4(octets)
}

func (s subnet) last() netip.Addr {
	octets := s.prefix.Masked().Addr().As4()
	for bit := s.prefix.Bits(); bit < 32; bit++ {
		octets[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(octets)
}

// gateway is the network's own gateway, and the node's VXLAN tunnel address.
func (s subnet) gateway() netip.Addr { return s.at(gatewayIndex) }

func (s subnet) hostEndpoint() netip.Addr { return s.at(hostEndpointIndex) }

// podGateway is the next hop of a pod's default route.
func (s subnet) podGateway(overlay bool) netip.Addr {
	if overlay {
		return s.gateway()
	}
	return s.hostEndpoint()
}

// reservedAs says what an address of the subnet is kept for; "" if a pod may
// have it.
func (s subnet) reservedAs(address netip.Addr) string {
	switch address {
	case s.at(0):
		return "network address"
	case s.gateway():
		return "gateway of the HNS network"
	case s.hostEndpoint():
		return "address of the host's endpoint"
	case s.last():
		return "broadcast address"
	}
	return ""
}

// address is what a pod gets, and the subnet it is from.
type address struct {
	pod    netip.Addr
	subnet subnet
}

// oneIPv4 is the address of a pod, which must be one of IPv4: everything else
// is refused before HNS is touched.
func oneIPv4(given []netip.Prefix) (netip.Prefix, error) {
	switch {
	case len(given) == 0:
		return netip.Prefix{}, cnierr.New(cnierr.NotOnWindows, "the IPAM plugin returned no address: a pod on Windows needs one of IPv4")
	case len(given) > 1:
		return netip.Prefix{}, cnierr.New(cnierr.NotOnWindows,
			"the IPAM plugin returned %d addresses (%s, %s): a pod on Windows has one address, of IPv4; let it assign IPv4 only", len(given), given[0], given[1])
	case !given[0].Addr().Unmap().Is4():
		return netip.Prefix{}, cnierr.New(cnierr.NotOnWindows,
			"the IPAM plugin returned %s: a pod on Windows has an IPv4 address; let it assign IPv4", given[0])
	}
	return given[0], nil
}

// plan places a pod's address in its subnet. A block that was claimed without
// the reservation of Windows may yield an address that is not a pod's.
func plan(given netip.Prefix) (address, error) {
	a := address{pod: given.Addr().Unmap(), subnet: subnet{given.Masked()}}
	if use := a.subnet.reservedAs(a.pod); use != "" {
		return address{}, cnierr.New(cnierr.NotOnWindows,
			"address %s is the %s of subnet %s and cannot be a pod's: its block was claimed without the addresses that Windows reserves; release the block when it is empty, so that this node claims it anew",
			a.pod, use, a.subnet.prefix)
	}
	return a, nil
}
