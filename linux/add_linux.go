package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/dataplane"
)

// undoLimit is how long undoing a failed ADD may take after its deadline
// (beyond 3).
const undoLimit = 30 * time.Second

// Add connects the pod (linux data plane 3). On error the link it made is gone
// again; one that was gone already, because a newer sandbox replaced it, makes
// the error one of code 118.
func (d *Dataplane) Add(ctx context.Context, req dataplane.Request) (made dataplane.Link, err error) {
	if err := withinLimits(req); err != nil {
		return dataplane.Link{}, err
	}
	s, err := d.openPod(ctx, req.Namespace)
	if err != nil {
		return dataplane.Link{}, err
	}
	defer s.close()

	want, second, err := s.create(ctx, req)
	if err != nil {
		return dataplane.Link{}, err
	}
	c := &connecting{session: s, want: want, container: req.Attachment.ContainerID, second: second}
	connected := false
	defer func() {
		if !connected {
			made, err = dataplane.Link{}, c.rollBack(ctx, err)
		}
	}()
	if err := c.connect(ctx); err != nil {
		return dataplane.Link{}, err
	}
	connected = true
	return dataplane.Link{HostInterface: want.pair.hostName, Index: c.hostIndex, MAC: c.podMAC.String(), Second: second}, nil
}

// connecting is a pair that was created and is being brought to the desired
// state.
type connecting struct {
	*session
	want      desired
	container string
	// second: the host end has the name for a second interface.
	second bool
	// The indexes of the two ends are 0 until they are known.
	hostIndex, podIndex int
	podMAC              net.HardwareAddr
	// hostMACSet: the host end's link-local address is known beforehand.
	hostMACSet bool
	addresses  *addressWatch
}

// connect carries out steps 3 to 15 in their order.
func (c *connecting) connect(ctx context.Context) error {
	steps := []func(context.Context) error{
		c.identify,
		c.nameOwner,
		c.setHostMAC,
		c.preparePod,
		c.prepareHost,
		c.raise,
		c.setPodMAC,
		c.routeV4,
		c.routeV6,
		c.address,
		c.setForwarding,
		c.routeOnHost,
	}
	defer c.closeWatch()
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return refused(err, "connecting host interface %s", c.want.pair.hostName)
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// identify learns both indexes from the pod's end: the name on the host may
// have gone to a parallel ADD already.
func (c *connecting) identify(context.Context) error {
	pod, exists, err := lookUp(c.pod.LinkByName(c.want.pair.podName))
	if err == nil && !exists {
		err = unix.ENODEV
	}
	if err != nil {
		return refused(err, "looking up interface %s just created in the pod", c.want.pair.podName)
	}
	c.podIndex, c.hostIndex, c.podMAC = pod.index, pod.peerIndex, pod.mac
	return nil
}

func (c *connecting) nameOwner(context.Context) error {
	err := c.host.LinkSetAlias(byIndex(c.hostIndex), c.want.alias)
	return c.onHost(err, "setting the alias")
}

func (c *connecting) onHost(err error, doing string) error {
	if err == nil {
		return nil
	}
	return refused(err, "%s of host interface %s (index %d)", doing, c.want.pair.hostName, c.hostIndex)
}

func (c *connecting) inPod(err error, doing string) error {
	if err == nil {
		return nil
	}
	return refused(err, "%s of interface %s in the pod", doing, c.want.pair.podName)
}

func (c *connecting) preparePod(context.Context) error { return c.podSysctls(c.want.beforeUp) }

func (c *connecting) prepareHost(context.Context) error {
	return within(c.hostNS, func() error { return c.d.writeSysctls(c.want.host, "the host") })
}

func (c *connecting) podSysctls(all []sysctl) error {
	if len(all) == 0 {
		return nil
	}
	return within(c.podNS, func() error { return c.d.writeSysctls(all, "the pod") })
}

// raise sets both ends up. Whoever wants to see the link-local address appear
// must be watching before.
func (c *connecting) raise(ctx context.Context) error {
	if c.want.v6 {
		if err := c.openWatch(); err != nil {
			return err
		}
	}
	if err := c.host.LinkSetUp(byIndex(c.hostIndex)); err != nil {
		return c.onHost(err, "setting up the link")
	}
	return c.inPod(c.pod.LinkSetUp(byIndex(c.podIndex)), "setting up the link")
}

func (c *connecting) setPodMAC(context.Context) error {
	if c.want.podMAC == nil {
		return nil
	}
	if err := c.pod.LinkSetHardwareAddr(byIndex(c.podIndex), c.want.podMAC); err != nil {
		return c.inPod(err, "setting MAC "+c.want.podMAC.String())
	}
	c.podMAC = c.want.podMAC
	return nil
}

func (c *connecting) routeV4(ctx context.Context) error {
	for _, r := range c.want.routesV4 {
		if err := c.addPodRoute(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (c *connecting) routeV6(ctx context.Context) error {
	if !c.want.v6 {
		return nil
	}
	if err := c.podSysctls(c.want.enableV6); err != nil {
		return err
	}
	gateway, err := c.findGateway(ctx)
	if err != nil {
		return err
	}
	for _, destination := range c.want.routesV6 {
		if err := c.addPodRoute(ctx, route{destination: destination, gateway: gateway}); err != nil {
			return err
		}
	}
	return nil
}

// secondMetric is above what the kernel gives a route that states none (IPv4 0,
// IPv6 1024), so that the first interface's routes are preferred.
const secondMetric = 2048

// addPodRoute adds a route through the pod's end. A further interface of the
// sandbox wants the routes that the first one has: its own are added beside
// them, never instead, and take over when the first one goes.
func (c *connecting) addPodRoute(ctx context.Context, r route) error {
	r.link = c.podIndex
	err := c.pod.RouteAdd(routeRequest(r))
	if errors.Is(err, unix.EEXIST) && c.hasSibling(ctx) {
		beside := routeRequest(r)
		beside.Priority = secondMetric + c.podIndex
		err = c.pod.RouteAdd(beside)
	}
	if err != nil {
		return refused(err, "adding route %s in the pod", r)
	}
	return nil
}

// hasSibling reports whether the container has another interface. One that has
// the second name may be there without an alias, or be the reference's. One
// that has the first name has a sibling if that was made while a half-made
// interface held the first name.
func (c *connecting) hasSibling(ctx context.Context) bool {
	if c.second {
		return true
	}
	named, err := c.namedLinks(ctx)
	if err != nil {
		c.d.log.Warn("whether the pod has another interface is unknown", "error", err)
	}
	return slices.ContainsFunc(named, func(l link) bool {
		owner, _ := l.owner()
		return l.index != c.hostIndex && owner.HasContainer(c.container)
	})
}

func (c *connecting) address(context.Context) error {
	for _, prefix := range c.want.addresses {
		if err := c.pod.AddrAdd(byIndex(c.podIndex), &netlink.Addr{IPNet: ipNet(prefix)}); err != nil {
			return c.inPod(err, "adding address "+prefix.String())
		}
	}
	return nil
}

func (c *connecting) setForwarding(context.Context) error { return c.podSysctls(c.want.forwarding) }

// rollBack deletes the link by its remembered index, also after the deadline.
func (c *connecting) rollBack(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if cause == nil {
		cause = errors.New("ADD ended in a panic")
	}
	if c.hostIndex == 0 {
		// identify failed; the name in the pod is still only ours.
		pod, err := c.podEnd(c.want.pair.podName)
		if err != nil {
			return notUndone(cause, err)
		}
		if pod == nil {
			return c.gone(cause)
		}
		c.hostIndex = pod.peerIndex
	}
	err := c.deleteLink(ctx, c.want.pair.hostName, c.hostIndex)
	switch {
	case err == nil:
		return cause
	case errors.Is(err, unix.ENODEV):
		return c.gone(cause)
	}
	return notUndone(cause, err)
}

// notUndone tells both errors; the code is that of the cause.
func notUndone(cause, err error) error {
	return fmt.Errorf("%w; what ADD had made is still there: %w", cause, err)
}

// gone explains a failure whose reason is that the link was taken away.
func (c *connecting) gone(cause error) error {
	overtaken := errGone(c.want.pair.hostName, c.hostIndex)
	overtaken.Details = cause.Error()
	return overtaken
}

// ipNet is the prefix as the netlink library wants it.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// routeRequest is the route as the netlink library wants it; protocol boot,
// table main and type unicast are its defaults.
func routeRequest(r route) *netlink.Route {
	out := &netlink.Route{LinkIndex: r.link, Scope: netlink.Scope(r.scope), Dst: ipNet(r.destination)}
	if r.gateway.IsValid() {
		out.Gw = r.gateway.AsSlice()
	}
	return out
}
