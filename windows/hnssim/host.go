package hnssim

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"calico-cni/windows/hns"
)

// makeSwitch gives the adapter's address to the switch's own interface, and
// drops the metadata routes.
func (e *Engine) makeSwitch() {
	e.interfaces = slices.DeleteFunc(e.interfaces, func(i hns.Interface) bool { return i.Index == adapterIndex })
	e.interfaces = append(e.interfaces, hns.Interface{Index: adapterIndex, Name: e.adapter.nic.Name, MAC: e.adapter.nic.MAC})
	metadata := netip.MustParsePrefix("169.254.169.0/24")
	if !e.profile.KeepMetadataRoutes {
		e.routes = slices.DeleteFunc(e.routes, func(r hns.HostRoute) bool { return metadata.Contains(r.Destination.Addr()) })
	}
	e.moveRoutes(adapterIndex, switchIndex)
}

func (e *Engine) removeSwitch() {
	e.interfaces = slices.DeleteFunc(e.interfaces, func(i hns.Interface) bool { return i.Index == adapterIndex })
	e.interfaces = append(e.interfaces, e.adapter.nic)
	e.moveRoutes(switchIndex, adapterIndex)
}

func (e *Engine) moveRoutes(from, to int) {
	for i := range e.routes {
		if e.routes[i].Interface == from {
			e.routes[i].Interface = to
		}
	}
}

// Host is the door for what the data plane needs beside HNS.
type Host struct{ engine *Engine }

// Host returns the door for the host.
func (e *Engine) Host() *Host { return &Host{e} }

var _ hns.Host = (*Host)(nil)

// Build implements hns.Host.
func (h *Host) Build() (int, error) {
	h.engine.mu.Lock()
	defer h.engine.mu.Unlock()
	return h.engine.profile.Build, nil
}

// Interfaces implements hns.Host.
func (h *Host) Interfaces() ([]hns.Interface, error) {
	e := h.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	shown := slices.Clone(e.interfaces)
	if len(e.networks) > 0 && e.reached(e.networks[0].made, e.profile.InterfaceDelay) {
		shown = append(shown, hns.Interface{Index: switchIndex, Name: "vEthernet (" + e.adapter.nic.Name + ")",
			MAC: e.adapter.nic.MAC, Addresses: e.adapter.nic.Addresses})
	}
	return shown, nil
}

// Forwarding implements hns.Host.
func (h *Host) Forwarding(index int) (bool, error) {
	h.engine.mu.Lock()
	defer h.engine.mu.Unlock()
	return h.engine.forwarding[index], nil
}

// EnableForwarding implements hns.Host. It is logged like a call of HNS.
func (h *Host) EnableForwarding(index int) error {
	e := h.engine
	return e.call(context.Background(), Call{Name: "EnableForwarding", ID: fmt.Sprint(index)}, func() error {
		e.forwarding[index] = true
		return nil
	})
}

// Routes implements hns.Host.
func (h *Host) Routes() ([]hns.HostRoute, error) {
	h.engine.mu.Lock()
	defer h.engine.mu.Unlock()
	return slices.Clone(h.engine.routes), nil
}

// AddRoute implements hns.Host.
func (h *Host) AddRoute(route hns.HostRoute) error {
	e := h.engine
	return e.call(context.Background(), Call{Name: "AddRoute", ID: route.Destination.String()}, func() error {
		e.routes = append(e.routes, route)
		return nil
	})
}

// Lock implements hns.Host.
func (h *Host) Lock(ctx context.Context) (unlock func(), err error) {
	e := h.engine
	select {
	case e.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("network lock: %w", hns.ErrLockHeld)
	}
	e.setLocked(true)
	return func() {
		e.setLocked(false)
		<-e.lock
	}, nil
}

func (e *Engine) setLocked(locked bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.locked = locked
}

// Locked reports whether the network lock is held.
func (e *Engine) Locked() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.locked
}

// Readdress changes the host's address, as DHCP may.
func (e *Engine) Readdress(address netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.adapter.nic.Addresses = []netip.Prefix{address}
	for i := range e.interfaces {
		if e.interfaces[i].Index == adapterIndex && len(e.networks) == 0 {
			e.interfaces[i].Addresses = e.adapter.nic.Addresses
		}
	}
}

// AddInterface adds a network card, in front of the others.
func (e *Engine) AddInterface(nic hns.Interface) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.interfaces = append([]hns.Interface{nic}, e.interfaces...)
}

// SetRoutes replaces the host's routes.
func (e *Engine) SetRoutes(routes []hns.HostRoute) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.routes = slices.Clone(routes)
}

// ForwardingOn lists the interfaces that forward packets.
func (e *Engine) ForwardingOn() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	var on []int
	for index := range e.forwarding {
		on = append(on, index)
	}
	slices.Sort(on)
	return on
}

// Wipe removes all networks, endpoints and pods' namespaces, as a boot does.
func (e *Engine) Wipe() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range slices.Clone(e.networks) {
		e.deleteNetwork(n)
	}
	e.namespaces = slices.DeleteFunc(e.namespaces, func(n *namespace) bool { return n.Type != hns.NamespaceHostDefault })
}

// Restart is a restart of the service: networks stay, endpoints that are
// attached to nothing go.
func (e *Engine) Restart() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endpoints = slices.DeleteFunc(e.endpoints, func(ep *endpoint) bool {
		return ep.HostComputeNamespace == "" && ep.Flags&hns.FlagRemote == 0
	})
}

// Misplace makes networks show an address that no interface has.
func (e *Engine) Misplace(provider netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.misplaced = provider
}

// provider is the address that networks show.
func (e *Engine) provider() netip.Addr {
	if e.misplaced.IsValid() {
		return e.misplaced
	}
	return e.adapter.address()
}
