package windows

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/windows/hns"
)

// ensureNetwork finds or makes the network of the pod's subnet.
func (a *addition) ensureNetwork(ctx context.Context) (created bool, err error) {
	found, err := a.Service.Networks(ctx)
	if err != nil {
		return false, refused(err, "listing the networks of HNS")
	}
	a.networks = slices.DeleteFunc(found, func(n hns.Network) bool { return !a.isOurs(n.Name) })
	plan := a.planNetwork(a.networks, a.address.subnet, a.vni)
	for _, warning := range plan.warnings {
		a.log.Warn(warning)
	}
	if plan.reuse != nil && len(plan.stale) == 0 {
		a.network = *plan.reuse
		return false, nil
	}
	if err := a.checkVersion(ctx); err != nil {
		return false, err
	}
	a.rememberRoutes()
	if err := a.removeStale(ctx, plan.stale); err != nil {
		return false, err
	}
	if plan.reuse != nil {
		a.network = *plan.reuse
		return false, nil
	}
	document := a.networkDocument(a.address.subnet, a.vni)
	if a.network, err = a.Service.CreateNetwork(ctx, document); err != nil {
		return false, refused(err, "creating network %s for %s", document.Name, a.address.subnet.prefix)
	}
	a.networks = append(a.networks, a.network)
	return true, nil
}

// checkVersion refuses what an old HNS would refuse with a mere number.
func (a *addition) checkVersion(ctx context.Context) error {
	version, err := a.Service.Version(ctx)
	if err != nil {
		return refused(err, "asking HNS for its version")
	}
	if !version.AtLeast(9, 2) {
		return cnierr.New(cnierr.NotOnWindows,
			"HNS has version %d.%d: networks need 9.2 or later; update Windows", version.Major, version.Minor)
	}
	if a.LoopbackDSR && !hasDSR(version) {
		a.log.Warn("windows_loopback_DSR is true, but HNS cannot do direct server return: it needs 9.3 to 9.x, or 10.2 and later; pods may not reach themselves by a service",
			"version", version)
	}
	return nil
}

func hasDSR(version hns.Version) bool {
	return version.Major == 9 && version.Minor >= 3 || version.AtLeast(10, 2)
}

// reread reads the network again.
func (a *addition) reread(ctx context.Context) error {
	found, err := a.Service.Networks(ctx)
	if err != nil {
		return err
	}
	for _, network := range found {
		if hns.SameID(network.ID, a.network.ID) {
			a.network = network
			return nil
		}
	}
	return cnierr.New(cnierr.HNSRefused, "network %s is gone: something else on this host removes networks", a.network.Name)
}

// removeStale removes networks that cannot stay, unless pods are on one of
// them: then nothing is touched.
func (a *addition) removeStale(ctx context.Context, stale []staleNetwork) error {
	if len(stale) == 0 {
		return nil
	}
	namespaces, err := a.Service.Namespaces(ctx)
	if err != nil {
		return refused(err, "listing the namespaces of HNS")
	}
	var pods []hns.Endpoint
	leaked := make([][]hns.Endpoint, len(stale))
	for i, s := range stale {
		endpoints, err := a.Service.EndpointsOfNetwork(ctx, s.network.ID)
		if err != nil {
			return refused(err, "listing the endpoints of network %s", s.network.Name)
		}
		var here []hns.Endpoint
		here, leaked[i] = podsOn(s.network, endpoints, namespaces)
		pods = append(pods, here...)
	}
	if len(pods) > 0 {
		return drainNeeded(stale, pods)
	}
	for i, s := range stale {
		if err := a.removeNetwork(ctx, s, leaked[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *addition) removeNetwork(ctx context.Context, s staleNetwork, leaked []hns.Endpoint) error {
	a.log.Warn("removing a network without pods that cannot stay", "network", s.network.Name, "reason", s.reason)
	for _, endpoint := range leaked {
		a.log.Warn("removing an endpoint without pod", "endpoint", endpoint.Name, "address", addressOf(endpoint), "network", s.network.Name)
		if err := a.removeEndpoint(ctx, endpoint); err != nil {
			return err
		}
	}
	if err := a.Service.DeleteNetwork(ctx, s.network.ID); err != nil && !hns.IsNotFound(err) {
		return refused(err, "removing network %s (%s)", s.network.Name, s.reason)
	}
	a.networks = slices.DeleteFunc(a.networks, func(n hns.Network) bool { return hns.SameID(n.ID, s.network.ID) })
	return nil
}

// ensureHostRoute lets pods reach their own host. Builds before 1903 cannot.
func (a *addition) ensureHostRoute(ctx context.Context) {
	if slices.ContainsFunc(a.network.Policies, func(p hns.Policy) bool { return strings.EqualFold(p.Type, hns.PolicyHostRoute) }) {
		return
	}
	err := a.Service.AddNetworkPolicy(ctx, a.network.ID, policy(hns.PolicyHostRoute, struct{}{}))
	if err != nil && hns.CodeOf(err) != hns.PolicyAlreadyPresent {
		a.log.Warn("pods may not reach their own host: the network took no HostRoute policy", "network", a.network.Name, "error", err)
	}
}

// metadataNet holds the addresses at which clouds tell a machine about itself.
func isMetadata(destination netip.Prefix) bool {
	metadata := netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 169, 0}), 24)
	return destination.IsSingleIP() && metadata.Contains(destination.Addr())
}

func (a *addition) metadataRoutes() ([]hns.HostRoute, error) {
	routes, err := a.Host.Routes()
	return slices.DeleteFunc(routes, func(r hns.HostRoute) bool { return !isMetadata(r.Destination) }), err
}

// rememberRoutes remembers what making a virtual switch removes (Windows data
// plane contract 12).
func (a *addition) rememberRoutes() {
	var err error
	if a.metadata, err = a.metadataRoutes(); err != nil {
		a.log.Warn("the host's routes cannot be read: those to the cloud's metadata may get lost", "error", err)
	}
}

// restoreRoutes adds the metadata routes that are gone, on the interface that
// has the management address now.
func (a *addition) restoreRoutes() {
	if len(a.metadata) == 0 {
		return
	}
	present, err := a.metadataRoutes()
	if err != nil {
		a.log.Warn("the host's routes cannot be read: those to the cloud's metadata may be lost", "error", err)
		return
	}
	for _, route := range a.metadata {
		if slices.ContainsFunc(present, func(p hns.HostRoute) bool { return p.Destination == route.Destination }) {
			continue
		}
		err := a.interfaceFor(&route)
		if err == nil {
			err = a.Host.AddRoute(route)
		}
		if err != nil {
			a.log.Warn("a route to the cloud's metadata is lost: add it by hand", "destination", route.Destination, "gateway", route.Gateway, "error", err)
		}
	}
}

// interfaceFor sets the interface of a route: the one with the management
// address, or that of the gateway's subnet while that is not known.
func (a *addition) interfaceFor(route *hns.HostRoute) error {
	if a.at.onHost() {
		route.Interface = a.at.nic.Index
		return nil
	}
	interfaces, err := a.Host.Interfaces()
	if err != nil {
		return err
	}
	if route.Interface = nearest(interfaces, route.Gateway).Index; route.Interface == 0 {
		return errors.New("no interface of the host is in the subnet of its gateway")
	}
	return nil
}
