package node

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Gateway is the address of the nodes' network that the process which makes
// the nodes has itself: what the nodes must reach listens there.
const Gateway = "172.31.250.1"

const (
	bridge     = "nodes"
	network    = "172.31.250.%d"
	length     = "/24"
	network6   = "fd00:250::%d"
	length6    = "/64"
	uplink     = "eth0"
	firstIndex = 11
)

// MakeNetwork makes the network that joins the nodes, in the network namespace
// of this process.
func MakeNetwork() error {
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("adding bridge %s: %w", bridge, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting bridge %s up: %w", bridge, err)
	}
	for _, address := range []string{Gateway + length, fmt.Sprintf(network6, 1) + length6} {
		if err := addAddress(netlink.AddrAdd, link, address); err != nil {
			return err
		}
	}
	return nil
}

func addAddress(add func(netlink.Link, *netlink.Addr) error, link netlink.Link, text string) error {
	address, err := netlink.ParseAddr(text)
	if err != nil {
		return err
	}
	address.Flags = unix.IFA_F_NODAD // usable at once
	if err := add(link, address); err != nil {
		return fmt.Errorf("adding %s to %s: %w", text, link.Attrs().Name, err)
	}
	return nil
}

// port is the name of the bridge's end of the node's wire.
func (n *Node) port() string { return fmt.Sprintf("port%d", n.index) }

// plugIn connects the booted node with the network.
func (n *Node) plugIn() error {
	if err := n.unplug(); err != nil {
		return err
	}
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("looking up bridge %s: %w", bridge, err)
	}
	attributes := netlink.LinkAttrs{Name: n.port(), MasterIndex: master.Attrs().Index, Flags: net.FlagUp}
	wire := &netlink.Veth{LinkAttrs: attributes, PeerName: uplink, PeerNamespace: netlink.NsPid(n.init.Process.Pid)}
	if err := netlink.LinkAdd(wire); err != nil {
		return fmt.Errorf("connecting %s: %w", n.Name, err)
	}
	return n.setAddresses()
}

func (n *Node) setAddresses() error {
	link, err := n.links.LinkByName(uplink)
	if err != nil {
		return fmt.Errorf("looking up %s of %s: %w", uplink, n.Name, err)
	}
	if err := n.links.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s of %s up: %w", uplink, n.Name, err)
	}
	for _, address := range []string{n.Address + length, n.Address6 + length6} {
		if err := addAddress(n.links.AddrAdd, link, address); err != nil {
			return err
		}
	}
	for _, gateway := range []string{Gateway, fmt.Sprintf(network6, 1)} {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}
		if err := n.links.RouteAdd(route); err != nil {
			return fmt.Errorf("adding the default route of %s by %s: %w", n.Name, gateway, err)
		}
	}
	return nil
}

// unplug removes the wire of an earlier boot. The kernel does so itself, some
// time after the node's last process is gone.
func (n *Node) unplug() error {
	link, err := netlink.LinkByName(n.port())
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("unplugging %s: %w", n.Name, err)
	}
	return nil
}

// Links returns the node's interfaces whose names begin with a prefix.
func (n *Node) Links(prefix string) ([]netlink.Link, error) {
	all, err := n.links.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces of %s: %w", n.Name, err)
	}
	var found []netlink.Link
	for _, link := range all {
		if name := link.Attrs().Name; len(name) >= len(prefix) && name[:len(prefix)] == prefix {
			found = append(found, link)
		}
	}
	return found, nil
}

// Routes returns all routes of the node's main tables.
func (n *Node) Routes() ([]netlink.Route, error) {
	routes, err := n.links.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing the routes of %s: %w", n.Name, err)
	}
	return routes, nil
}
