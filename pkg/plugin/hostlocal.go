package plugin

import (
	"context"
	"fmt"
	"net/netip"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
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
	return s.withSubnets(func(family netconf.Family, n int) (string, error) { return standIn(family, n), nil })
}

// insertPodCIDRs puts the node's pod CIDRs into the document of ADD. The Node is
// read once, and only for a placeholder (network plugin contract 8).
func (a *addition) insertPodCIDRs(ctx context.Context) error {
	if a.Conf.IPAM.Type != netconf.IPAMHostLocal {
		return nil
	}
	var cidrs map[netconf.Family]string
	document, err := a.withSubnets(func(family netconf.Family, _ int) (_ string, err error) {
		if cidrs == nil {
			if cidrs, err = a.podCIDRs(ctx); err != nil {
				return "", err
			}
		}
		if cidrs[family] == "" {
			return "", cnierr.New(cnierr.TryAgainLater,
				"node %s has no IPv%d pod CIDR (spec.podCIDRs): let the cluster assign one, or write a range", a.podCIDRNode(), family)
		}
		return cidrs[family], nil
	})
	if err == nil {
		a.ipamCall.Stdin = document
	}
	return err
}

// withSubnets is the configuration with every placeholder replaced; n counts
// them.
func (s *serving) withSubnets(subnetFor func(family netconf.Family, n int) (string, error)) ([]byte, error) {
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
		if ok && placeholder {
			cidr, err := subnetFor(family, replaced)
			if err != nil {
				return nil, cnierr.Wrap(cnierr.Unclassified, err, fmt.Sprintf("network configuration key %s.subnet: %q", r.Path, subnet))
			}
			r.Set("subnet", cidr)
			replaced++
		}
		if err := s.clamp(r); err != nil {
			return nil, err
		}
	}
	if replaced == 0 && !s.windows() {
		return s.Call.Stdin, nil
	}
	return document.Bytes()
}

// podCIDRNode is the Node that the placeholders stand for.
func (s *serving) podCIDRNode() string {
	if s.Conf.Kubernetes.NodeName != "" {
		return s.Conf.Kubernetes.NodeName
	}
	return s.ID.Node
}

// podCIDRs reads the node's ranges from Kubernetes, one of a family at most.
func (s *serving) podCIDRs(ctx context.Context) (map[netconf.Family]string, error) {
	name := s.podCIDRNode()
	answers, err := s.API.Read(ctx, datastore.Get{Key: model.ResourceKey{Kind: model.KindNode, Name: name}})
	if err != nil {
		return nil, err
	}
	node, _ := datastore.One[model.Node](answers[0])
	if node == nil {
		return nil, cnierr.New(cnierr.NodeUnknown, "node %s does not exist in the Kubernetes API: correct kubernetes.node_name or nodename", name)
	}
	return byFamily(name, node.PodCIDRs())
}

func byFamily(node string, texts []string) (map[netconf.Family]string, error) {
	cidrs := map[netconf.Family]string{}
	for _, text := range texts {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, cnierr.New(cnierr.Unclassified, "node %s: pod CIDR %q is none: correct spec.podCIDRs", node, text)
		}
		family := netconf.Family(model.FamilyOf(cidr.Addr()))
		if cidrs[family] != "" {
			return nil, cnierr.New(cnierr.Unclassified, "node %s has two IPv%d pod CIDRs, %s and %s: keep one of a family", node, family, cidrs[family], text)
		}
		cidrs[family] = text
	}
	return cidrs, nil
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
