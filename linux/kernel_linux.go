package linux

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// rtnetlink is a netlink connection bound to one network namespace.
type rtnetlink interface {
	LinkByName(name string) (netlink.Link, error)
	LinkByIndex(index int) (netlink.Link, error)
	LinkDel(netlink.Link) error
	LinkSetAlias(link netlink.Link, alias string) error
	LinkSetHardwareAddr(netlink.Link, net.HardwareAddr) error
	LinkSetUp(netlink.Link) error
	LinkSetDown(netlink.Link) error
	AddrAdd(netlink.Link, *netlink.Addr) error
	AddrList(link netlink.Link, family int) ([]netlink.Addr, error)
	RouteAdd(*netlink.Route) error
	RouteGetWithOptions(destination net.IP, options *netlink.RouteGetOptions) ([]netlink.Route, error)
	RouteListFiltered(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error)
	GetNetNsIdByFd(fd int) (int, error)
	// Execute sends a request of our own and returns the answers of that type.
	Execute(req *nl.NetlinkRequest, answer uint16) ([][]byte, error)
	Close()
}

// connection is the real rtnetlink. The library keeps the socket of a handle to
// itself, so requests of our own go through a second one, opened when needed.
type connection struct {
	*netlink.Handle
	namespace netns.NsHandle
	timeout   time.Duration
	own       map[int]*nl.SocketHandle
}

// dial opens a connection whose requests end with the context's deadline.
func dial(ctx context.Context, ns netns.NsHandle) (rtnetlink, error) {
	timeout, err := remaining(ctx)
	if err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := handle.SetSocketTimeout(timeout); err != nil {
		handle.Close()
		return nil, err
	}
	return &connection{Handle: handle, namespace: ns, timeout: timeout}, nil
}

// remaining is the time that is left, at most a minute.
func remaining(ctx context.Context) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	left := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return max(left, time.Millisecond), nil
}

func (c *connection) Execute(req *nl.NetlinkRequest, answer uint16) ([][]byte, error) {
	if c.own == nil {
		if err := c.openOwn(); err != nil {
			return nil, err
		}
	}
	req.Sockets = c.own
	return req.Execute(unix.NETLINK_ROUTE, answer)
}

func (c *connection) openOwn() error {
	socket, err := nl.GetNetlinkSocketAt(c.namespace, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	c.own = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	limit := unix.NsecToTimeval(c.timeout.Nanoseconds())
	if err := errors.Join(socket.SetSendTimeout(&limit), socket.SetReceiveTimeout(&limit)); err != nil {
		return err
	}
	// The kernel then says in words what it refuses; old ones do not.
	_ = socket.SetExtAck(true)
	return nil
}

func (c *connection) Close() {
	c.Handle.Close()
	for _, socket := range c.own {
		socket.Close()
	}
}

// byIndex names a link by its index alone: between reading and acting another
// interface may have taken the name.
func byIndex(index int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// lookUp turns the answer of a look-up into a link; a missing one is no error.
func lookUp(l netlink.Link, err error) (found link, exists bool, _ error) {
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) || errors.Is(err, unix.ENODEV) {
		return link{}, false, nil
	}
	if err != nil {
		return link{}, false, err
	}
	return linkOf(l), true, nil
}

func linkOf(l netlink.Link) link {
	attrs := l.Attrs()
	return link{
		index:         attrs.Index,
		name:          attrs.Name,
		alias:         attrs.Alias,
		kind:          l.Type(),
		mac:           attrs.HardwareAddr,
		mtu:           attrs.MTU,
		up:            attrs.Flags&net.FlagUp != 0,
		peerIndex:     attrs.ParentIndex,
		peerNamespace: attrs.NetNsID,
	}
}

// dumpAttempts bounds the repetition of a dump that the kernel says was
// interrupted by changes: on a busy node one in a few is.
const dumpAttempts = 20

// dump repeats an interrupted dump, whose result may be incomplete.
func dump[T any](ctx context.Context, list func() (T, error)) (T, error) {
	for attempt := 1; ; attempt++ {
		result, err := list()
		interrupted := errors.Is(err, netlink.ErrDumpInterrupted) || errors.Is(err, unix.EINTR)
		if !interrupted || attempt == dumpAttempts || ctx.Err() != nil {
			return result, err
		}
	}
}

// pause waits, or returns the context's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
