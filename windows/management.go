package windows

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/windows/hns"
)

// management is the address by which other nodes reach this one, and the
// interface that has it. It is found afresh at each ADD: it may change.
type management struct {
	address netip.Addr
	// nic is the zero value if no interface has the address.
	nic hns.Interface
}

func (m management) known() bool { return m.address.IsValid() }

func (m management) onHost() bool { return m.nic.Index != 0 }

// subnet is the network of the management address as its interface has it.
func (m management) subnet() netip.Prefix {
	return prefixFor(m.nic, m.address).Masked()
}

// withAddress finds the interface that has exactly this address: two in one
// subnet must not be confused.
func withAddress(interfaces []hns.Interface, address netip.Addr) (hns.Interface, bool) {
	for _, nic := range interfaces {
		if slices.ContainsFunc(nic.Addresses, func(p netip.Prefix) bool { return p.Addr() == address }) {
			return nic, true
		}
	}
	return hns.Interface{}, false
}

// nearest finds the interface of an address, else the first one in its subnet.
func nearest(interfaces []hns.Interface, address netip.Addr) hns.Interface {
	if nic, ok := withAddress(interfaces, address); ok {
		return nic
	}
	for _, nic := range interfaces {
		if slices.ContainsFunc(nic.Addresses, func(p netip.Prefix) bool { return p.Contains(address) }) {
			return nic
		}
	}
	return hns.Interface{}
}

func prefixFor(nic hns.Interface, address netip.Addr) netip.Prefix {
	var containing netip.Prefix
	for _, prefix := range nic.Addresses {
		if prefix.Addr() == address {
			return prefix
		}
		if prefix.Contains(address) && !containing.IsValid() {
			containing = prefix
		}
	}
	return containing
}

// How long HNS is waited for after a network was made (Windows data plane
// contract 4.1, 4.2).
const (
	overlayPause  = 500 * time.Millisecond
	overlayTries  = 10
	l2BridgePause = time.Second
	l2BridgeTries = 30
)

// awaitOverlay waits for the management address of a VXLAN network, and after
// its creation for the interface that has it. Reads may fail meanwhile.
func (a *addition) awaitOverlay(ctx context.Context, created bool) error {
	err := a.poll(ctx, overlayPause, overlayTries, func(ctx context.Context, first bool) (bool, error) {
		if !first {
			if err := a.reread(ctx); err != nil {
				return false, err
			}
		}
		a.at.address = providerOf(a.network.Policies)
		return a.at.known(), nil
	})
	switch {
	case err != nil:
		return refused(err, "waiting for the management address of network %s", a.network.Name)
	case !a.at.known():
		return errNoManagement(a.network.Name)
	}
	tries := 1
	if created {
		tries = overlayTries
	}
	err = a.poll(ctx, overlayPause, tries, func(context.Context, bool) (found bool, err error) {
		interfaces, err := a.Host.Interfaces()
		if created {
			a.at.nic, found = withAddress(interfaces, a.at.address)
			return found, err
		}
		a.at.nic = nearest(interfaces, a.at.address)
		return true, err
	})
	if err == nil && created && !a.at.onHost() {
		err = a.errNoInterface()
	}
	return refused(err, "looking for the interface of network %s", a.network.Name)
}

// awaitL2Bridge waits for the management address and its interface. A read that
// fails ends the wait.
func (a *addition) awaitL2Bridge(ctx context.Context, created bool) error {
	for try := range l2BridgeTries {
		if try > 0 {
			if err := a.Pause(ctx, l2BridgePause); err != nil {
				return refused(err, "waiting for the management address of network %s", a.network.Name)
			}
			if err := a.reread(ctx); err != nil {
				return refused(err, "waiting for the management address of network %s", a.network.Name)
			}
		}
		interfaces, err := a.Host.Interfaces()
		if err != nil {
			return refused(err, "listing the interfaces of the host")
		}
		a.at.address = providerOf(a.network.Policies)
		if !a.at.known() && (!created || try == l2BridgeTries-1) {
			if a.at.address, err = a.defaultRouteAddress(interfaces); err != nil {
				return err
			}
		}
		var found bool
		if a.at.nic, found = withAddress(interfaces, a.at.address); found && a.at.known() {
			return nil
		}
	}
	if !a.at.known() {
		return errNoManagement(a.network.Name)
	}
	return a.errNoInterface()
}

// defaultRouteAddress is what the host is reached by if an L2Bridge network
// does not say it: the address of the interface with the best default route,
// but never that of the host's endpoint.
func (a *addition) defaultRouteAddress(interfaces []hns.Interface) (netip.Addr, error) {
	if a.Assumptions.ProviderAddressAlways {
		return netip.Addr{}, nil
	}
	routes, err := a.Host.Routes()
	if err != nil {
		return netip.Addr{}, refused(err, "listing the routes of the host")
	}
	slices.SortStableFunc(routes, func(r, s hns.HostRoute) int { return int(int64(r.Metric) - int64(s.Metric)) })
	for _, route := range routes {
		if route.Destination.Bits() != 0 {
			continue
		}
		for _, nic := range interfaces {
			for _, prefix := range nic.Addresses {
				if nic.Index == route.Interface && prefix.Addr() != a.address.subnet.hostEndpoint() {
					return prefix.Addr(), nil
				}
			}
		}
	}
	return netip.Addr{}, nil
}

// poll asks until it is told that there is no more to wait for; the last
// failure of a question is returned.
func (a *addition) poll(ctx context.Context, between time.Duration, tries int, ask func(ctx context.Context, first bool) (bool, error)) error {
	var failure error
	for try := range tries {
		if try > 0 {
			if err := a.Pause(ctx, between); err != nil {
				return err
			}
		}
		var done bool
		if done, failure = ask(ctx, try == 0); failure == nil && done {
			return nil
		}
	}
	return failure
}

func errNoManagement(network string) error {
	return cnierr.New(cnierr.HNSRefused,
		"network %s has no management address (policy ProviderAddress): the host's adapter has no IPv4 address, or HNS has not finished; look at the host's adapters", network)
}

func (a *addition) errNoInterface() error {
	return cnierr.New(cnierr.HNSRefused,
		"no interface of the host has %s, the management address of network %s: its vEthernet adapter is missing or down", a.at.address, a.network.Name)
}
