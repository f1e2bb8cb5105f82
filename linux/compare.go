package linux

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/dataplane"
)

// observed is what CHECK found on the host. Every slice may be empty.
type observed struct {
	pod  *link // nil: no such interface in the pod
	host *link // nil: the peer is not in the host's namespace
	// podAddresses and podRoutes are those of the pod's interface, the routes
	// from every table; linkLocals are the host end's.
	podAddresses []netip.Prefix
	podRoutes    []route
	linkLocals   []netip.Addr
	// hostRoutes are those whose output is the host end, from every table.
	hostRoutes []route
	// sysctls holds the values by path.
	sysctls map[string]string
}

// differences lists everything in the left column of linux data plane 9.2 that
// is not so.
func differences(want dataplane.Expectation, got observed) []string {
	if got.pod == nil {
		return []string{fmt.Sprintf("interface %s is missing in network namespace %s", want.Attachment.IfName, want.Namespace)}
	}
	diffs := podLinkDifferences(want, *got.pod)
	diffs = append(diffs, addressDifferences(want, got)...)
	if got.host == nil {
		return append(diffs, fmt.Sprintf("the peer of interface %s is not in the host's network namespace", got.pod.name))
	}
	diffs = append(diffs, hostLinkDifferences(want, *got.host)...)
	diffs = append(diffs, podRouteDifferences(want, got)...)
	diffs = append(diffs, hostRouteDifferences(want, got)...)
	return append(diffs, sysctlDifferences(want, got)...)
}

func podLinkDifferences(want dataplane.Expectation, pod link) []string {
	var diffs []string
	if !pod.isPair() {
		diffs = append(diffs, fmt.Sprintf("interface %s is a %s, neither veth nor netkit", pod.name, pod.kind))
	}
	if !pod.up {
		diffs = append(diffs, fmt.Sprintf("interface %s is down", pod.name))
	}
	if want.MAC != "" && !strings.EqualFold(want.MAC, pod.mac.String()) {
		diffs = append(diffs, fmt.Sprintf("interface %s has MAC %s instead of %s", pod.name, pod.mac, want.MAC))
	}
	if want.MTU != 0 && want.MTU != pod.mtu {
		diffs = append(diffs, fmt.Sprintf("interface %s has MTU %d instead of %d", pod.name, pod.mtu, want.MTU))
	}
	return diffs
}

func hostLinkDifferences(want dataplane.Expectation, host link) []string {
	var diffs []string
	if owner, named := host.owner(); named && !owner.Is(want.Attachment) {
		diffs = append(diffs, fmt.Sprintf("host interface %s belongs to %s by its alias", host.name, owner))
	}
	if !host.up {
		diffs = append(diffs, fmt.Sprintf("host interface %s is down", host.name))
	}
	if !slices.Equal(host.mac, hostMAC) {
		diffs = append(diffs, fmt.Sprintf("host interface %s has MAC %s instead of %s", host.name, host.mac, hostMAC))
	}
	return diffs
}

func addressDifferences(want dataplane.Expectation, got observed) []string {
	var diffs []string
	for _, prefix := range hostPrefixes(want.Addresses) {
		if !slices.Contains(got.podAddresses, prefix) {
			diffs = append(diffs, fmt.Sprintf("address %s is missing on interface %s", prefix, got.pod.name))
		}
	}
	return diffs
}

// podRouteDifferences asks for a way out per family. Other routes may belong to
// later plugins of the chain.
func podRouteDifferences(want dataplane.Expectation, got observed) []string {
	var diffs []string
	v4, v6 := families(want.Addresses)
	if v4 {
		if !slices.ContainsFunc(got.podRoutes, isGatewayRoute) {
			diffs = append(diffs, fmt.Sprintf("the link route to %s on interface %s is missing", gatewayV4, got.pod.name))
		}
		if !want.RoutesUnknown && !anyRouteVia(got.podRoutes, gatewayV4) {
			diffs = append(diffs, fmt.Sprintf("no IPv4 route goes through %s on interface %s", gatewayV4, got.pod.name))
		}
	}
	if v6 && !want.RoutesUnknown && !anyRouteVia(got.podRoutes, got.linkLocals...) {
		diffs = append(diffs, fmt.Sprintf("no IPv6 route on interface %s goes through the link-local address of host interface %s (%v)",
			got.pod.name, got.host.name, got.linkLocals))
	}
	return diffs
}

func isGatewayRoute(r route) bool {
	return r.destination == hostPrefix(gatewayV4) && !r.gateway.IsValid() && r.scope == scopeLink
}

func anyRouteVia(routes []route, gateways ...netip.Addr) bool {
	return slices.ContainsFunc(routes, func(r route) bool { return slices.Contains(gateways, r.gateway) })
}

// hostRouteDifferences compares destination, prefix length and output
// interface; the agent may rewrite everything else.
func hostRouteDifferences(want dataplane.Expectation, got observed) []string {
	if want.SkipHostRoutes {
		return nil
	}
	var diffs []string
	for _, wanted := range hostRoutes(want.Addresses) {
		if !slices.ContainsFunc(got.hostRoutes, wanted.sameDestination) {
			diffs = append(diffs, fmt.Sprintf("the host route to %s through %s is missing", wanted.destination, got.host.name))
		}
	}
	return diffs
}

func sysctlDifferences(want dataplane.Expectation, got observed) []string {
	var diffs []string
	v4, v6 := families(want.Addresses)
	for _, s := range lasting(hostSysctls(got.host.name, v4, v6)) {
		if value := got.sysctls[s.path]; value != s.value {
			diffs = append(diffs, fmt.Sprintf("sysctl %s is %q instead of %q", s.name(), value, s.value))
		}
	}
	return diffs
}
