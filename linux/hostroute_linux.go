package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
)

// routeOnHost adds the routes to the pod's addresses. They are never replaced:
// a route through another interface means that somebody uses the address, and
// taking it over would divert live traffic (linux data plane 8).
func (c *connecting) routeOnHost(ctx context.Context) error {
	for _, want := range c.want.hostRoutes {
		want.link = c.hostIndex
		err := c.unlessUsed(ctx, want)
		if err == nil {
			err = c.host.RouteAdd(routeRequest(want))
		}
		if errors.Is(err, unix.EEXIST) {
			err = c.judgeExisting(ctx, want, err)
		}
		if err != nil {
			return refused(err, "adding host route %s (%s)", want, c.want.pair.hostName)
		}
	}
	return nil
}

// unlessUsed fails if the very address is on another interface of the host or
// is the host's own. A route with another metric does not keep ours from being
// added: ours would then take its traffic, or get none. The best match of the
// kernel is only a hint, because old kernels tell every match as one of the
// address alone; but it spares the list, which is long on a node full of pods.
// Routes through a gateway may be stale ones to a node that had the address.
func (c *connecting) unlessUsed(ctx context.Context, want route) error {
	if c.hostNS.Equal(c.podNS) {
		return nil // the pod's end has it (CNI_NETNS_OVERRIDE)
	}
	hint, err := c.host.RouteGetWithOptions(want.destination.Addr().AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || len(hint) == 0 || hint[0].LinkIndex == c.hostIndex {
		return nil // no route is as good as any
	}
	family, table := familyOf(want.destination), hint[0].Table
	if hint[0].Type == unix.RTN_LOCAL {
		// The kernel keeps both tables in one until there are rules.
		table = unix.RT_TABLE_LOCAL
	}
	bits := prefixOf(hint[0], family).Bits()
	if bits != want.destination.Bits() || table != unix.RT_TABLE_MAIN && table != unix.RT_TABLE_LOCAL {
		return nil
	}
	all, err := listRoutes(ctx, c.host, family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("listing the routes of the host: %w", err)
	}
	for _, r := range all {
		if r.sameDestination(want) && r.link != want.link && !r.gateway.IsValid() && r.discard == "" {
			return c.errUsed(r, table)
		}
	}
	return nil
}

func (c *connecting) errUsed(conflict route, table int) error {
	if table == unix.RT_TABLE_LOCAL {
		return cnierr.New(cnierr.NetlinkRefused,
			"the address is the host's own (%s); take it off that interface, or out of the pools", c.describe(conflict.link))
	}
	return cnierr.New(cnierr.NetlinkRefused,
		"the host already has route %s (%s); somebody else uses the address: remove that interface or release the address", conflict, c.describe(conflict.link))
}

// judgeExisting accepts a route that is already what is wanted.
func (c *connecting) judgeExisting(ctx context.Context, want route, exists error) error {
	family := familyOf(want.destination)
	own, err := listRoutes(ctx, c.host, family,
		&netlink.Route{LinkIndex: c.hostIndex}, netlink.RT_FILTER_OIF)
	if err != nil {
		return fmt.Errorf("listing the routes of the interface: %w", err)
	}
	if findAccepted(want, own) {
		return nil
	}
	all, err := listRoutes(ctx, c.host, family, &netlink.Route{}, 0)
	if err != nil {
		return fmt.Errorf("listing the routes of the host: %w", err)
	}
	conflict, ok := findConflict(want, all)
	if !ok {
		return fmt.Errorf("%w, but it was gone when looked for", exists)
	}
	if conflict.discard != "" {
		return cnierr.New(cnierr.NetlinkRefused,
			"the host already has route %s, which drops all packets to the address; have whoever made it (a BGP agent, for a block of one address) withdraw it", conflict)
	}
	return c.errUsed(conflict, unix.RT_TABLE_MAIN)
}

// describe names an interface of the host and the owner its alias tells.
func (c *connecting) describe(index int) string {
	l, exists, err := lookUp(c.host.LinkByIndex(index))
	if err != nil || !exists {
		return "unknown"
	}
	return l.name + " " + l.describeOwner()
}

func familyOf(p netip.Prefix) int {
	if p.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// listRoutes lists routes, the next hops of a multipath route each on its own.
func listRoutes(ctx context.Context, sock rtnetlink, family int, filter *netlink.Route, mask uint64) ([]route, error) {
	listed, err := dump(ctx, func() ([]netlink.Route, error) {
		return sock.RouteListFiltered(family, filter, mask)
	})
	if err != nil {
		return nil, err
	}
	var routes []route
	for _, l := range listed {
		r := route{destination: prefixOf(l, family), gateway: addrOf(l.Gw), link: l.LinkIndex, scope: int(l.Scope), discard: discardOf(l)}
		if len(l.MultiPath) == 0 {
			routes = append(routes, r)
		}
		for _, hop := range l.MultiPath {
			r.gateway, r.link = addrOf(hop.Gw), hop.LinkIndex
			routes = append(routes, r)
		}
	}
	return routes, nil
}

// discardOf is the type of a listed route if it drops packets. For IPv6 the
// kernel gives such a route the loopback as its interface.
func discardOf(l netlink.Route) string {
	switch l.Type {
	case unix.RTN_BLACKHOLE:
		return "blackhole"
	case unix.RTN_UNREACHABLE:
		return "unreachable"
	case unix.RTN_PROHIBIT:
		return "prohibit"
	}
	return ""
}

// prefixOf is the destination of a listed route; a default route has none.
func prefixOf(l netlink.Route, family int) netip.Prefix {
	if l.Dst == nil {
		if family == unix.AF_INET {
			return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	bits, _ := l.Dst.Mask.Size()
	return netip.PrefixFrom(addrOf(l.Dst.IP), bits)
}

// addrOf is the zero Addr for a missing address.
func addrOf(ip []byte) netip.Addr {
	address, _ := netip.AddrFromSlice(ip)
	return address.Unmap()
}
