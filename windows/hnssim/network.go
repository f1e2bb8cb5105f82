package hnssim

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/windows/hns"
)

var networkTypes = [...]string{"NAT", "Transparent", "L2Bridge", "L2Tunnel", "ICS", "Private", "Overlay"}

const minVSID = 4096

func (e *Engine) createNetwork(document string) (string, error) {
	const call = "CreateNetwork"
	n := &network{made: e.now()}
	if err := json.Unmarshal([]byte(document), &n.Network); err != nil || n.SchemaVersion.Major != 2 {
		return "", fail(call, hns.InvalidJSON, "%s", document)
	}
	if !slices.Contains(networkTypes[:], string(n.Type)) {
		return "", fail(call, hns.UnknownNetworkType, "type %q", n.Type)
	}
	if e.assumes(UniqueNetworkNames) && first(e.networks, func(o *network) bool { return o.Name == n.Name }) != nil {
		return "", fail(call, hns.NetworkNameInUse, "name %s", n.Name)
	}
	for _, s := range subnetsOf(n.Network) {
		if err := e.checkSubnet(n.Type, s); err != nil {
			return "", err
		}
	}
	for _, p := range n.Policies {
		if err := checkNetworkPolicy(call, p); err != nil {
			return "", err
		}
	}
	n.ID = newID()
	if len(e.networks) == 0 {
		e.makeSwitch()
	}
	e.networks = append(e.networks, n)
	return n.ID, nil
}

func subnetsOf(n hns.Network) []hns.Subnet {
	var subnets []hns.Subnet
	for _, ipam := range n.Ipams {
		subnets = append(subnets, ipam.Subnets...)
	}
	return subnets
}

func (e *Engine) checkSubnet(kind hns.NetworkType, s hns.Subnet) error {
	const call = "CreateNetwork"
	prefix, err := netip.ParsePrefix(s.IPAddressPrefix)
	if err != nil || !prefix.Addr().Is4() || prefix != prefix.Masked() {
		return fail(call, hns.AddressOutsideSubnets, "prefix %q", s.IPAddressPrefix)
	}
	gateway, err := netip.ParseAddr(gatewayOf(s))
	if err != nil || !prefix.Contains(gateway) {
		return fail(call, hns.AddressOutsideSubnets, "default route via %q in %s", gatewayOf(s), prefix)
	}
	vsid := vsidOf(s)
	if kind == hns.Overlay && (vsid < minVSID || len(s.Policies) != 1) {
		return fail(call, hns.InvalidPolicy, "%d policies, VSID %d", len(s.Policies), vsid)
	}
	for _, n := range e.networks {
		for _, other := range subnetsOf(n.Network) {
			taken, err := netip.ParsePrefix(other.IPAddressPrefix)
			if err == nil && e.assumes(DisjointPrefixes) && taken.Overlaps(prefix) {
				return fail(call, hns.NetworkNameInUse, "prefix %s overlaps %s of network %s", prefix, taken, n.Name)
			}
			if kind == hns.Overlay && n.Type == hns.Overlay && e.assumes(DistinctVSIDs) && vsidOf(other) == vsid {
				return fail(call, hns.NetworkNameInUse, "VSID %d is that of network %s", vsid, n.Name)
			}
		}
	}
	return nil
}

func gatewayOf(s hns.Subnet) string {
	for _, route := range s.Routes {
		if route.DestinationPrefix == "0.0.0.0/0" {
			return route.NextHop
		}
	}
	return ""
}

// vsidOf is the isolation id of a subnet, 0 if it has none that is well formed.
func vsidOf(s hns.Subnet) uint32 {
	for _, p := range s.Policies {
		var settings struct{ IsolationId *uint32 }
		if strings.EqualFold(p.Type, hns.PolicyVSID) && json.Unmarshal(p.Settings, &settings) == nil && settings.IsolationId != nil {
			return *settings.IsolationId
		}
	}
	return 0
}

// showNetwork is a network as it looks now: what HNS adds itself comes later.
func (e *Engine) showNetwork(n *network) hns.Network {
	shown := n.Network
	shown.ID = e.spelled(n.ID)
	shown.Policies = slices.Clone(n.Policies)
	if !e.reached(n.made, e.profile.ManagementDelay) {
		return shown
	}
	if n.Type == hns.Overlay || n.Type == hns.L2Bridge && !e.profile.NoProviderAddress {
		shown.Policies = append(shown.Policies, settings("ProviderAddress", map[string]string{"ProviderAddress": e.provider().String()}))
	}
	if n.Type == hns.Overlay {
		shown.Policies = append(shown.Policies, settings("DrMacAddress", map[string]string{"Address": "00-15-5D-AB-CD-EF"}))
	}
	return shown
}

func settings(kind string, members map[string]string) hns.Policy {
	body, _ := json.Marshal(members) // texts always encode
	return hns.Policy{Type: kind, Settings: body}
}

// modifyNetwork changes policies; nothing else of a network can be changed.
func (e *Engine) modifyNetwork(n *network, request modification) error {
	const call = "ModifyNetwork"
	if request.ResourceType != "Policy" {
		return fail(call, hns.RequestUnsupported, "resource %q", request.ResourceType)
	}
	policies, err := policiesOf(call, request)
	if err != nil {
		return err
	}
	for _, p := range policies {
		if err := checkNetworkPolicy(call, p); err != nil {
			return err
		}
		if strings.EqualFold(p.Type, hns.PolicyHostRoute) && request.RequestType == "Add" {
			switch {
			case e.profile.RefuseHostRoute:
				return fail(call, hns.RequestUnsupported, "HostRoute")
			case slices.ContainsFunc(n.Policies, func(o hns.Policy) bool { return strings.EqualFold(o.Type, p.Type) }):
				return fail(call, hns.PolicyAlreadyPresent, "HostRoute")
			}
		}
	}
	n.Policies = changed(n.Policies, policies, request.RequestType)
	return nil
}

// deleteNetwork deletes its endpoints with it.
func (e *Engine) deleteNetwork(n *network) {
	for _, ep := range slices.Clone(e.endpoints) {
		if hns.SameID(ep.HostComputeNetwork, n.ID) {
			e.deleteEndpoint(ep)
		}
	}
	e.networks = without(e.networks, n)
	if len(e.networks) == 0 {
		e.removeSwitch()
	}
}
