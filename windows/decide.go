package windows

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
)

// networkPlan is what to do about the networks found (Windows data plane
// contract 4, 10).
type networkPlan struct {
	// reuse is the network that serves the subnet; nil: it is to be made.
	reuse *hns.Network
	// stale are networks of ours that must go first. None may go while pods are
	// on any of them.
	stale []staleNetwork
	// warnings are about a network that is reused as it is.
	warnings []string
}

type staleNetwork struct {
	network hns.Network
	reason  string
}

// planNetwork decides for a subnet. The VNI of a network that is there is not
// compared: it cannot be changed, only reported.
func (o Options) planNetwork(found []hns.Network, s subnet, vni uint32) networkPlan {
	var plan networkPlan
	name := o.networkName(s)
	for _, network := range found {
		switch {
		case !o.isOurs(network.Name):
		case network.Name != name:
			if reason := o.inTheWay(network, s); reason != "" {
				plan.stale = append(plan.stale, staleNetwork{network, reason})
			}
		case plan.reuse != nil:
		default:
			if reason := o.mismatch(network, s); reason != "" {
				plan.stale = append(plan.stale, staleNetwork{network, reason})
				continue
			}
			plan.reuse = &network
			plan.warnings = o.vniWarnings(network, vni)
		}
	}
	return plan
}

// mismatch says why a network of the right name cannot serve the subnet.
func (o Options) mismatch(network hns.Network, s subnet) string {
	if network.Type != o.networkType() {
		return fmt.Sprintf("it is of type %s instead of %s (the mode was changed)", network.Type, o.networkType())
	}
	for _, in := range subnetsOf(network) {
		if prefix, err := netip.ParsePrefix(in.IPAddressPrefix); err != nil || prefix != s.prefix {
			continue
		}
		if slices.ContainsFunc(in.Routes, func(r hns.Route) bool {
			return r.DestinationPrefix == defaultRoute && r.NextHop == s.gateway().String()
		}) {
			return ""
		}
		return fmt.Sprintf("its subnet %s lacks the default route via %s", s.prefix, s.gateway())
	}
	return fmt.Sprintf("its subnet is %v instead of %s", prefixesOf(network), s.prefix)
}

// inTheWay says why a network of ours with another name cannot stay.
func (o Options) inTheWay(network hns.Network, s subnet) string {
	if o.SingleNetwork != (network.Name == o.Name) {
		return "it was made with the other value of windows_use_single_network"
	}
	for _, prefix := range prefixesOf(network) {
		if prefix.Overlaps(s.prefix) {
			return fmt.Sprintf("it serves %s, which overlaps %s", prefix, s.prefix)
		}
	}
	return ""
}

func (o Options) vniWarnings(network hns.Network, vni uint32) []string {
	if !o.Overlay {
		return nil
	}
	for _, in := range subnetsOf(network) {
		settings, ok := settingsOf[isolation](in.Policies, hns.PolicyVSID)
		if ok && settings.IsolationID != vni {
			return []string{fmt.Sprintf(
				"network %s has VNI %d and the configuration says %d: it takes effect only after draining the node and removing the network",
				network.Name, settings.IsolationID, vni)}
		}
	}
	return nil
}

// podsOn are the endpoints of pods that run on a network ("where we go beyond
// the reference" 8); what else is there, but for remote endpoints, is leaked.
func podsOn(network hns.Network, endpoints []hns.Endpoint, namespaces []hns.Namespace) (pods, leaked []hns.Endpoint) {
	for _, endpoint := range endpoints {
		switch {
		case endpoint.Name == hostEndpointName(network.Name):
			leaked = append(leaked, endpoint)
		case endpoint.Flags&hns.FlagRemote != 0:
		case isLive(endpoint, namespaces):
			pods = append(pods, endpoint)
		default:
			leaked = append(leaked, endpoint)
		}
	}
	return pods, leaked
}

// isLive reports whether an endpoint is attached to a namespace that exists.
func isLive(endpoint hns.Endpoint, namespaces []hns.Namespace) bool {
	return endpoint.Attached() && slices.ContainsFunc(namespaces, func(n hns.Namespace) bool {
		return hns.SameID(n.ID, endpoint.HostComputeNamespace)
	})
}

// drainNeeded is the refusal to remove networks that pods are on.
func drainNeeded(stale []staleNetwork, pods []hns.Endpoint) error {
	networks, names := make([]string, len(stale)), make([]string, len(pods))
	for i, s := range stale {
		networks[i] = fmt.Sprintf("network %s: %s", s.network.Name, s.reason)
	}
	for i, pod := range pods {
		names[i] = describe(pod)
	}
	return cnierr.New(cnierr.DrainNeeded,
		"%s; pods are still on it: %s; drain the node, remove the network, then install the configuration again",
		strings.Join(networks, "; "), strings.Join(names, ", "))
}

// endpointPlan is what to do about the endpoints of one name.
type endpointPlan struct {
	// reuse is an endpoint that serves as it is; nil: it is to be made.
	reuse *hns.Endpoint
	// remove are those that must go.
	remove []hns.Endpoint
}

// planEndpoint keeps the first endpoint that fits and removes the others.
func planEndpoint(found []hns.Endpoint, fits func(hns.Endpoint) bool) endpointPlan {
	var plan endpointPlan
	for _, endpoint := range found {
		if plan.reuse == nil && fits(endpoint) {
			plan.reuse = &endpoint
			continue
		}
		plan.remove = append(plan.remove, endpoint)
	}
	return plan
}

// planHostEndpoint decides about the host's endpoint: the wrong address, the
// wrong network or, on Overlay, an address of the host that has changed means a
// new one (Windows data plane contract 5).
func planHostEndpoint(found []hns.Endpoint, want hns.Endpoint) endpointPlan {
	return planEndpoint(found, func(endpoint hns.Endpoint) bool {
		return hns.SameID(endpoint.HostComputeNetwork, want.HostComputeNetwork) &&
			addressOf(endpoint) == addressOf(want) && endpoint.Flags == want.Flags &&
			(want.Flags&hns.FlagRemote == 0 || providerOf(endpoint.Policies) == providerOf(want.Policies))
	})
}

// planPodEndpoint decides about what an earlier ADD of the container left: only
// one with the very address, and in no other namespace, is used.
func planPodEndpoint(found []hns.Endpoint, want hns.Endpoint, namespace string) endpointPlan {
	return planEndpoint(found, func(endpoint hns.Endpoint) bool {
		return hns.SameID(endpoint.HostComputeNetwork, want.HostComputeNetwork) && addressOf(endpoint) == addressOf(want) &&
			(!endpoint.Attached() || hns.SameID(endpoint.HostComputeNamespace, namespace))
	})
}

// The modes of a pool that are compared.
const (
	encapsulationNever       = "Never"
	encapsulationCrossSubnet = "CrossSubnet"
)

// refusedPool says why an address of this pool cannot be on Windows; warning is
// about a pool whose mode is not the network's.
func (o Options) refusedPool(pod netip.Addr, pool dataplane.Pool) (warning string, err error) {
	const remedy = "keep Windows nodes out of it by its nodeSelector"
	switch {
	case pool.IPIPMode != encapsulationNever:
		return "", cnierr.New(cnierr.NotOnWindows,
			"address %s: pool %s has ipipMode %s, which Windows cannot do; %s", pod, pool.Name, pool.IPIPMode, remedy)
	case pool.VXLANMode == encapsulationCrossSubnet:
		return "", cnierr.New(cnierr.NotOnWindows,
			"address %s: pool %s has vxlanMode CrossSubnet, which Windows cannot do; %s", pod, pool.Name, remedy)
	case o.Overlay && pool.VXLANMode == encapsulationNever:
		return fmt.Sprintf("mode is vxlan, but pool %s has vxlanMode Never: other nodes will not encapsulate", pool.Name), nil
	case !o.Overlay && pool.VXLANMode != encapsulationNever:
		return fmt.Sprintf("mode is not vxlan, but pool %s has vxlanMode %s: other nodes will encapsulate", pool.Name, pool.VXLANMode), nil
	}
	return "", nil
}
