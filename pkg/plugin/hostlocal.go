package plugin

import (
	"fmt"
	"net/netip"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/netconf"
)

// podRoutes are the destinations that the pod reaches through us (network
// plugin contract 6.2 step 2, 6.3).
func (s *serving) podRoutes() ([]netip.Prefix, error) {
	defaults := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	if s.Conf.IPAM.Type != netconf.IPAMHostLocal || !s.ID.IsKubernetes() {
		return defaults, nil
	}
	custom, err := s.Conf.IPAM.RouteDestinations()
	switch {
	case err != nil:
		return nil, err
	case len(custom) == 0:
		return defaults, nil
	case s.Conf.IncludeDefaultRoutes:
		return append(defaults, custom...), nil
	}
	return custom, nil
}

// ipamDocument is the configuration for the IPAM plugin: as the runtime sent
// it, except for placeholders of the node's pod CIDRs. host-local frees by
// container id, so verbs other than ADD need no real ranges; it only wants
// ranges that do not overlap ("where we go beyond the reference" 7).
func (s *serving) ipamDocument() ([]byte, error) {
	if s.Conf.IPAM.Type != netconf.IPAMHostLocal {
		return s.Call.Stdin, nil
	}
	document := s.Conf.Document()
	ranges, err := document.Ranges()
	if err != nil {
		return nil, err
	}
	replaced := 0
	for _, r := range ranges {
		subnet, ok, err := r.Text("subnet")
		if err != nil {
			return nil, err
		}
		family, placeholder := netconf.PodCIDRFamily(subnet)
		if !ok || !placeholder {
			continue
		}
		if s.Call.Verb == invocation.Add {
			return nil, cnierr.New(cnierr.UnsupportedField,
				"network configuration key %s.subnet: %q needs the Kubernetes API, which this version does not support: write the node's range", r.Path, subnet)
		}
		r.Set("subnet", standIn(family, replaced))
		replaced++
	}
	if replaced == 0 {
		return s.Call.Stdin, nil
	}
	return document.Bytes()
}

// standIn is the n-th range that stands for a pod CIDR. The blocks it is taken
// from are never routed (RFC 1112 section 4, RFC 6666), so it overlaps no
// range that somebody configured.
func standIn(family netconf.Family, n int) string {
	if family == netconf.IPv4 {
		return fmt.Sprintf("240.0.%d.0/24", n&0xff)
	}
	return fmt.Sprintf("100::%x:0/112", n+1)
}
