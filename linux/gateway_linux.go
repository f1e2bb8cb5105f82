package linux

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
)

// The loop of linux data plane 5.1.
const (
	macLimit = 5 * time.Second
	macPause = 100 * time.Millisecond
)

// setHostMAC sets the host end's MAC until it stays: on some kernels setting
// one fails silently. A refusal leaves the kernel's MAC in place.
func (c *connecting) setHostMAC(ctx context.Context) error {
	for end := time.Now().Add(macLimit); ; {
		if err := c.session.host.LinkSetHardwareAddr(byIndex(c.host), hostMAC); err != nil {
			c.d.log.Warn("MAC of the host interface not set, keeping the kernel's",
				"interface", c.want.pair.hostName, "mac", hostMAC, "error", err)
			return nil
		}
		l, err := c.session.host.LinkByIndex(c.host)
		if err != nil {
			return c.onHost(err, "reading back the MAC")
		}
		got := l.Attrs().HardwareAddr
		if bytes.Equal(got, hostMAC) {
			c.hostMACSet = true
			return nil
		}
		if time.Now().After(end) {
			return cnierr.New(cnierr.NetlinkRefused,
				"setting MAC %s of host interface %s: it still is %s after %v; find out what changes it",
				hostMAC, c.want.pair.hostName, got, macLimit)
		}
		if err := pause(ctx, macPause); err != nil {
			return c.onHost(err, "waiting for the MAC")
		}
	}
}

// The loop of linux data plane 7.2.
const (
	gatewayTries = 10
	gatewayPause = 50 * time.Millisecond
)

// findGateway is the link-local address of the host end. The kernel makes it
// some time after the link is up.
func (c *connecting) findGateway(ctx context.Context) (netip.Addr, error) {
	var last error
	for end := time.Now().Add(gatewayTries * gatewayPause); time.Now().Before(end); {
		gateway, err := c.firstAddressV6(ctx)
		switch {
		case err != nil:
			last = err
		case !gateway.IsValid():
			last = errors.New("it has no IPv6 address")
		case c.hostMACSet && gateway != c.want.linkLocalV6:
			last = errors.New("its first IPv6 address is " + gateway.String() + " instead of " + c.want.linkLocalV6.String())
			if err := c.renewLinkLocal(ctx); err != nil {
				return netip.Addr{}, err
			}
			continue
		default:
			return gateway, nil
		}
		if err := c.addresses.await(ctx, gatewayPause); err != nil {
			return netip.Addr{}, c.onHost(err, "waiting for the link-local address")
		}
	}
	return netip.Addr{}, cnierr.New(cnierr.NetlinkRefused,
		"finding the IPv6 link-local address of host interface %s, the pod's gateway: %w after %v; is IPv6 disabled on the host?",
		c.want.pair.hostName, last, gatewayTries*gatewayPause)
}

func (c *connecting) firstAddressV6(ctx context.Context) (netip.Addr, error) {
	addresses, err := dump(ctx, func() ([]netlink.Addr, error) {
		return c.session.host.AddrList(byIndex(c.host), unix.AF_INET6)
	})
	if err != nil || len(addresses) == 0 {
		return netip.Addr{}, err
	}
	address, _ := netip.AddrFromSlice(addresses[0].IP)
	return address, nil
}

// renewLinkLocal makes the kernel compute the address again: it had done so
// from an older MAC.
func (c *connecting) renewLinkLocal(ctx context.Context) error {
	host := byIndex(c.host)
	if err := c.session.host.LinkSetDown(host); err != nil {
		return c.onHost(err, "setting down the link to renew the link-local address")
	}
	if err := c.session.host.LinkSetHardwareAddr(host, hostMAC); err != nil {
		c.d.log.Warn("MAC of the host interface not set again", "interface", c.want.pair.hostName, "error", err)
	}
	if err := pause(ctx, gatewayPause); err != nil {
		return c.onHost(err, "waiting to renew the link-local address")
	}
	return c.onHost(c.session.host.LinkSetUp(host), "setting up the link again")
}

// addressWatch hears of IPv6 addresses on the host. It saves most of the pause
// between two tries: the address usually comes within a millisecond.
type addressWatch struct {
	socket *nl.NetlinkSocket
	index  uint32
}

func (c *connecting) openWatch() error {
	socket, err := nl.SubscribeAt(c.hostNS, netns.None(), unix.NETLINK_ROUTE, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return c.onHost(err, "watching the IPv6 addresses")
	}
	c.addresses = &addressWatch{socket: socket, index: uint32(c.host)}
	return nil
}

func (c *connecting) closeWatch() {
	if c.addresses != nil {
		c.addresses.socket.Close()
	}
}

// await returns when an address of the interface changed, or after the limit.
func (w *addressWatch) await(ctx context.Context, limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		left := time.Until(end)
		if left <= 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		timeout := unix.NsecToTimeval(max(left, time.Millisecond).Nanoseconds())
		if err := w.socket.SetReceiveTimeout(&timeout); err != nil {
			return err
		}
		messages, _, err := w.socket.Receive()
		if err != nil {
			// Time is up, or so much happened that messages were lost: look.
			return ctx.Err()
		}
		for _, m := range messages {
			if m.Header.Type == unix.RTM_NEWADDR && nl.DeserializeIfAddrmsg(m.Data).Index == w.index {
				return nil
			}
		}
	}
}
