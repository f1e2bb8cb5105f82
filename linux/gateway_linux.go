package linux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
		if err := c.host.LinkSetHardwareAddr(byIndex(c.hostIndex), hostMAC); err != nil {
			c.d.log.Warn("MAC of the host interface not set, keeping the kernel's",
				"host_interface", c.want.pair.hostName, "mac", hostMAC, "error", err)
			return nil
		}
		l, err := c.host.LinkByIndex(c.hostIndex)
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

// The loop of linux data plane 7.2. The kernel reports the carrier of a link up
// to a second late, if it thinks that the report is not urgent, and only then
// makes the address; on a busy host both wait for the lock of all links. So
// longer than that is waited after each time the link was set up.
const (
	gatewayLimit    = 3 * time.Second
	gatewayPause    = 50 * time.Millisecond
	gatewayRenewals = 10
)

// findGateway is the link-local address of the host end. The kernel makes it
// some time after the link is up.
func (c *connecting) findGateway(ctx context.Context) (netip.Addr, error) {
	var last error
	for renewals := 0; renewals < gatewayRenewals; renewals++ {
		var gateway netip.Addr
		if gateway, last = c.awaitLinkLocal(ctx); last != nil {
			break
		}
		if !c.hostMACSet || gateway == c.want.linkLocalV6 {
			return gateway, nil
		}
		last = fmt.Errorf("its first IPv6 address is %s instead of %s", gateway, c.want.linkLocalV6)
		if err := c.renewLinkLocal(ctx); err != nil {
			return netip.Addr{}, err
		}
	}
	return netip.Addr{}, refused(last, "finding the IPv6 link-local address of host interface %s, the pod's gateway (is IPv6 disabled on the host?)",
		c.want.pair.hostName)
}

// awaitLinkLocal waits for the host end to have an IPv6 address, the first of
// which it returns.
func (c *connecting) awaitLinkLocal(ctx context.Context) (netip.Addr, error) {
	last := errors.New("it has no IPv6 address")
	for end := time.Now().Add(gatewayLimit); time.Now().Before(end); {
		gateway, err := c.firstAddressV6(ctx)
		if gateway.IsValid() {
			return gateway, nil
		}
		if err != nil {
			last = err
		}
		if err := c.addresses.await(ctx, gatewayPause); err != nil {
			return netip.Addr{}, err
		}
	}
	return netip.Addr{}, fmt.Errorf("%w after %v", last, gatewayLimit)
}

func (c *connecting) firstAddressV6(ctx context.Context) (netip.Addr, error) {
	addresses, err := dump(ctx, func() ([]netlink.Addr, error) {
		return c.host.AddrList(byIndex(c.hostIndex), unix.AF_INET6)
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
	host := byIndex(c.hostIndex)
	if err := c.host.LinkSetDown(host); err != nil {
		return c.onHost(err, "setting down the link to renew the link-local address")
	}
	if err := c.host.LinkSetHardwareAddr(host, hostMAC); err != nil {
		c.d.log.Warn("MAC of the host interface not set again", "host_interface", c.want.pair.hostName, "error", err)
	}
	if err := pause(ctx, gatewayPause); err != nil {
		return c.onHost(err, "waiting to renew the link-local address")
	}
	return c.onHost(c.host.LinkSetUp(host), "setting up the link again")
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
	c.addresses = &addressWatch{socket: socket, index: uint32(c.hostIndex)}
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
