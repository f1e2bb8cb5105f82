package hns

import (
	"context"
	"net"
	"net/netip"
)

// Interface is an interface of the host.
type Interface struct {
	Index int
	Name  string
	MAC   net.HardwareAddr
	// Addresses are the IPv4 ones with the prefix lengths they were given.
	Addresses []netip.Prefix
}

// HostRoute is an IPv4 route of the host.
type HostRoute struct {
	Destination netip.Prefix
	Gateway     netip.Addr
	Interface   int
	Metric      uint32
	// Persistent routes come back after a boot.
	Persistent bool
}

// Host is what the data plane needs of the host beside its networking service.
type Host interface {
	// Build is the true build number of Windows.
	Build() (int, error)
	Interfaces() ([]Interface, error)
	// Forwarding reports whether an interface forwards IPv4 packets.
	Forwarding(interfaceIndex int) (bool, error)
	EnableForwarding(interfaceIndex int) error
	Routes() ([]HostRoute, error)
	AddRoute(HostRoute) error
	// Lock takes the lock under which all plugins of the host change networks
	// and make endpoints. It waits until ctx ends, and the error then wraps
	// ErrLockHeld. The lock is freed by the returned function, and by the
	// operating system if the process dies.
	Lock(ctx context.Context) (unlock func(), err error)
}
