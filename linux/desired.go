package linux

import (
	"net"
	"net/netip"
	"strings"

	"calico-cni/pkg/dataplane"
)

// The kinds of link pair.
const (
	kindVeth   = "veth"
	kindNetkit = "netkit"
)

// hostMAC is the address of every host end (linux data plane 1). Links are
// point to point, so the duplicates never meet.
var hostMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}

// gatewayV4 is assigned to no interface: the host end answers ARP for it.
var gatewayV4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})

// linkLocalOf is the EUI-64 link-local address of an interface with this MAC.
func linkLocalOf(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80,
		8: mac[0] ^ 0x02, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// sysctl is one file under /proc/sys/net.
type sysctl struct {
	path  string
	value string
	// optional: a failure to write it is only a warning.
	optional bool
	// lasting: it must hold as long as the pod lives, so CHECK compares it.
	lasting bool
}

// desired is the state ADD gives to one interface: the plan that the Linux
// shell carries out. Its parts are in the order of linux data plane 3.
type desired struct {
	pair        pair
	alias       string
	v4, v6      bool
	beforeUp    []sysctl // in the pod
	host        []sysctl
	podMAC      net.HardwareAddr
	routesV4    []route // in the pod
	enableV6    []sysctl
	routesV6    []netip.Prefix // in the pod, through a gateway yet to be found
	addresses   []netip.Prefix
	forwarding  []sysctl // in the pod
	hostRoutes  []route
	linkLocalV6 netip.Addr // of the host end, if its MAC could be set
}

// pair describes the two ends to create. MTU 0 leaves the kernel's default.
type pair struct {
	kind     string
	hostName string
	podName  string
	mtu      int
	queues   int
}

// desire computes the desired state for a request once the host end's name is
// settled.
func desire(req dataplane.Request, hostName string) desired {
	ifName := req.Attachment.IfName
	v4, v6 := families(req.Addresses)
	want := desired{
		pair: pair{kind: req.Device, hostName: hostName, podName: ifName,
			mtu: req.MTU, queues: max(req.Queues, 1)},
		alias:       req.Attachment.Alias(),
		v4:          v4,
		v6:          v6,
		host:        hostSysctls(hostName, v4, v6),
		podMAC:      req.MAC,
		addresses:   hostPrefixes(req.Addresses),
		forwarding:  forwardingSysctls(v4, v6, req.AllowIPForwarding),
		linkLocalV6: linkLocalOf(hostMAC),
	}
	if v4 {
		want.routesV4 = podRoutesV4(req.Routes)
	}
	if v6 {
		want.beforeUp = []sysctl{{path: "ipv6/conf/" + ifName + "/accept_dad", value: "0"}}
		want.enableV6 = enableV6Sysctls()
		want.routesV6 = prefixesOf(req.Routes, false)
	}
	if !req.SkipHostRoutes {
		want.hostRoutes = hostRoutes(req.Addresses)
	}
	return want
}

// families reports which families the addresses are of.
func families(addresses []netip.Addr) (v4, v6 bool) {
	for _, address := range addresses {
		if address.Unmap().Is4() {
			v4 = true
		} else {
			v6 = true
		}
	}
	return v4, v6
}

// hostPrefix is the address as the pod sees it: /32 or /128.
func hostPrefix(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	return netip.PrefixFrom(address, address.BitLen())
}

func hostPrefixes(addresses []netip.Addr) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(addresses))
	for i, address := range addresses {
		prefixes[i] = hostPrefix(address)
	}
	return prefixes
}

// prefixesOf are the prefixes of one family, in order.
func prefixesOf(prefixes []netip.Prefix, v4 bool) []netip.Prefix {
	var out []netip.Prefix
	for _, prefix := range prefixes {
		if prefix.Addr().Is4() == v4 {
			out = append(out, prefix.Masked())
		}
	}
	return out
}

// podRoutesV4 are the routes of linux data plane 7.1: the gateway is reachable
// on the link without an address, everything else goes through it.
func podRoutesV4(destinations []netip.Prefix) []route {
	routes := []route{{destination: hostPrefix(gatewayV4), scope: scopeLink}}
	for _, destination := range prefixesOf(destinations, true) {
		routes = append(routes, route{destination: destination, gateway: gatewayV4})
	}
	return routes
}

// hostRoutes are the routes of linux data plane 8, in the addresses' order; the
// output interface is the host end.
func hostRoutes(addresses []netip.Addr) []route {
	var routes []route
	for _, prefix := range hostPrefixes(addresses) {
		routes = append(routes, route{destination: prefix, scope: scopeLink})
	}
	return routes
}

// hostSysctls are the rows of linux data plane 6.1, written while the host end
// is down.
func hostSysctls(hostName string, v4, v6 bool) []sysctl {
	conf4, conf6 := "ipv4/conf/"+hostName+"/", "ipv6/conf/"+hostName+"/"
	var out []sysctl
	if v4 {
		out = append(out,
			sysctl{path: conf4 + "route_localnet", value: "1"},
			sysctl{path: "ipv4/neigh/" + hostName + "/proxy_delay", value: "0", optional: true},
			sysctl{path: conf4 + "proxy_arp", value: "1", lasting: true},
			sysctl{path: conf4 + "forwarding", value: "1", lasting: true})
	}
	if v6 {
		out = append(out,
			sysctl{path: conf6 + "accept_dad", value: "0"},
			sysctl{path: conf6 + "disable_ipv6", value: "0", lasting: true},
			// From the MAC, whatever the host has as default: linux data plane 1.
			sysctl{path: conf6 + "addr_gen_mode", value: "0", optional: true},
			sysctl{path: conf6 + "proxy_ndp", value: "1", lasting: true},
			sysctl{path: conf6 + "forwarding", value: "1", lasting: true})
	}
	return append(out, sysctl{path: conf6 + "accept_ra", value: "0", optional: true})
}

// lasting are the sysctls that CHECK compares.
func lasting(all []sysctl) []sysctl {
	var out []sysctl
	for _, s := range all {
		if s.lasting {
			out = append(out, s)
		}
	}
	return out
}

func enableV6Sysctls() []sysctl {
	return []sysctl{
		{path: "ipv6/conf/all/disable_ipv6", value: "0"},
		{path: "ipv6/conf/default/disable_ipv6", value: "0"},
		{path: "ipv6/conf/lo/disable_ipv6", value: "0"},
	}
}

// forwardingSysctls are written explicitly also when forwarding is to be off:
// a new namespace may inherit the host's setting (linux data plane 6.2).
func forwardingSysctls(v4, v6, allow bool) []sysctl {
	value := "0"
	if allow {
		value = "1"
	}
	var out []sysctl
	if v4 {
		out = append(out, sysctl{path: "ipv4/ip_forward", value: value})
	}
	if v6 {
		out = append(out, sysctl{path: "ipv6/conf/all/forwarding", value: value})
	}
	return out
}

// name is the sysctl as administrators write it, with a slash for the rare dot
// in an interface name.
func (s sysctl) name() string {
	swap := strings.NewReplacer("/", ".", ".", "/")
	return "net." + swap.Replace(s.path)
}
