package windows

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
)

// tunnels are the ends of the node's VXLAN networks, the pod's first; none if
// that one cannot be published yet.
func (a *addition) tunnels() []dataplane.Tunnel {
	if _, onHost := withAddress([]hns.Interface{a.at.nic}, a.at.address); !a.Overlay || !onHost {
		return nil
	}
	own, err := tunnelOf(a.network)
	if err != nil {
		return nil
	}
	return append(own, a.otherTunnels(a.networks, a.network.ID)...)
}

// otherTunnels are those of our other VXLAN networks.
func (o Options) otherTunnels(networks []hns.Network, except string) []dataplane.Tunnel {
	var tunnels []dataplane.Tunnel
	for _, network := range networks {
		if network.Type != hns.Overlay || !o.isOurs(network.Name) || hns.SameID(network.ID, except) {
			continue
		}
		if of, err := tunnelOf(network); err == nil {
			tunnels = append(tunnels, of...)
		}
	}
	return tunnels
}

// tunnelOf are the ends of one network, one for each subnet (Windows data plane
// contract 8).
func tunnelOf(network hns.Network) ([]dataplane.Tunnel, error) {
	router, _ := settingsOf[routerMAC](network.Policies, hns.PolicyDrMacAddress)
	mac, err := net.ParseMAC(router.Address)
	if err != nil {
		return nil, cnierr.New(cnierr.HNSRefused,
			"network %s has no usable policy DrMacAddress (%q): HNS has not finished making it", network.Name, router.Address)
	}
	var tunnels []dataplane.Tunnel
	for _, prefix := range prefixesOf(network) {
		tunnels = append(tunnels, dataplane.Tunnel{Address: subnet{prefix}.gateway(), MAC: mac.String()})
	}
	return tunnels, nil
}

// Tunnels are the ends of the node's VXLAN networks, that of the link's first.
// It fails unless they can be published: HNS must know remote subnets, and the
// network must show the address that the host really has.
func (d *Dataplane) Tunnels(ctx context.Context, made dataplane.Link) ([]dataplane.Tunnel, error) {
	a := addition{Dataplane: d}
	if err := a.checkVersion(ctx); err != nil {
		return nil, err
	}
	networks, err := d.Service.Networks(ctx)
	if err != nil {
		return nil, refused(err, "listing the networks of HNS")
	}
	at := slices.IndexFunc(networks, func(n hns.Network) bool { return d.isOurs(n.Name) && n.Type == hns.Overlay && serves(n, made) })
	if at < 0 {
		return nil, cnierr.New(cnierr.HNSRefused, "no VXLAN network of this node serves %v: something else removed it", made.Prefixes)
	}
	if err := d.checkProvider(networks[at]); err != nil {
		return nil, err
	}
	own, err := tunnelOf(networks[at])
	if err != nil {
		return nil, err
	}
	return append(own, d.otherTunnels(networks, networks[at].ID)...), nil
}

func serves(network hns.Network, made dataplane.Link) bool {
	return slices.ContainsFunc(made.Prefixes, func(p netip.Prefix) bool { return slices.Contains(prefixesOf(network), p.Masked()) })
}

// checkProvider fails unless an interface of the host has the address that the
// network is reached at.
func (d *Dataplane) checkProvider(network hns.Network) error {
	provider := providerOf(network.Policies)
	if !provider.IsValid() {
		return errNoManagement(network.Name)
	}
	interfaces, err := d.Host.Interfaces()
	if err != nil {
		return refused(err, "listing the interfaces of the host")
	}
	if _, ok := withAddress(interfaces, provider); !ok {
		return cnierr.New(cnierr.HNSRefused,
			"network %s is reached at %s (policy ProviderAddress), which no interface of the host has: the host's address was changed", network.Name, provider)
	}
	return nil
}
