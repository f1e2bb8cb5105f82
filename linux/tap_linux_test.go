package linux

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// errInjected is the kernel's answer to an injected fault.
var errInjected = unix.EPERM

// fault makes every request to the kernel pass through before, which may fail
// it or do something first. Operations are named "host LinkSetUp" and the like,
// writing a sysctl "sysctl <path>".
func (n *node) fault(before func(op string) error) {
	n.d.kernel.dial = func(ctx context.Context, ns netns.NsHandle) (rtnetlink, error) {
		conn, err := dial(ctx, ns)
		if err != nil {
			return nil, err
		}
		where := "pod "
		if ns.Equal(n.Handle()) {
			where = "host "
		}
		return &tap{rtnetlink: conn, before: func(op string) error { return before(where + op) }}, nil
	}
	n.d.kernel.writeSysctl = func(path, value string) error {
		if err := before("sysctl " + path); err != nil {
			return err
		}
		return writeSysctl(path, value)
	}
}

// counted wraps a hook so that it sees how often an operation was done before.
func counted(before func(op string, seen int) error) func(string) error {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(op string) error {
		mu.Lock()
		n := seen[op]
		seen[op]++
		mu.Unlock()
		return before(op, n)
	}
}

// tap is a connection whose every request can be failed.
type tap struct {
	rtnetlink
	before func(op string) error
}

func (t *tap) LinkByName(name string) (netlink.Link, error) {
	if err := t.before("LinkByName"); err != nil {
		return nil, err
	}
	return t.rtnetlink.LinkByName(name)
}

func (t *tap) LinkByIndex(index int) (netlink.Link, error) {
	if err := t.before("LinkByIndex"); err != nil {
		return nil, err
	}
	return t.rtnetlink.LinkByIndex(index)
}

func (t *tap) LinkDel(l netlink.Link) error {
	return t.unless("LinkDel", func() error { return t.rtnetlink.LinkDel(l) })
}

func (t *tap) LinkSetAlias(l netlink.Link, alias string) error {
	return t.unless("LinkSetAlias", func() error { return t.rtnetlink.LinkSetAlias(l, alias) })
}

// errIgnored makes an operation succeed without being done.
var errIgnored = errors.New("silently ignored")

func (t *tap) unless(op string, do func() error) error {
	err := t.before(op)
	if errors.Is(err, errIgnored) {
		return nil
	}
	if err != nil {
		return err
	}
	return do()
}

func (t *tap) LinkSetHardwareAddr(l netlink.Link, mac net.HardwareAddr) error {
	return t.unless("LinkSetHardwareAddr", func() error { return t.rtnetlink.LinkSetHardwareAddr(l, mac) })
}

func (t *tap) LinkSetUp(l netlink.Link) error {
	return t.unless("LinkSetUp", func() error { return t.rtnetlink.LinkSetUp(l) })
}

func (t *tap) LinkSetDown(l netlink.Link) error {
	return t.unless("LinkSetDown", func() error { return t.rtnetlink.LinkSetDown(l) })
}

func (t *tap) AddrAdd(l netlink.Link, a *netlink.Addr) error {
	return t.unless("AddrAdd", func() error { return t.rtnetlink.AddrAdd(l, a) })
}

func (t *tap) AddrList(l netlink.Link, family int) ([]netlink.Addr, error) {
	if err := t.before("AddrList"); err != nil {
		return nil, err
	}
	return t.rtnetlink.AddrList(l, family)
}

func (t *tap) RouteAdd(r *netlink.Route) error {
	return t.unless("RouteAdd", func() error { return t.rtnetlink.RouteAdd(r) })
}

func (t *tap) RouteGetWithOptions(destination net.IP, options *netlink.RouteGetOptions) ([]netlink.Route, error) {
	if err := t.before("RouteGet"); err != nil {
		return nil, err
	}
	return t.rtnetlink.RouteGetWithOptions(destination, options)
}

func (t *tap) RouteListFiltered(family int, f *netlink.Route, mask uint64) ([]netlink.Route, error) {
	if err := t.before("RouteList"); err != nil {
		return nil, err
	}
	return t.rtnetlink.RouteListFiltered(family, f, mask)
}

func (t *tap) GetNetNsIdByFd(fd int) (int, error) {
	if err := t.before("GetNetNsId"); err != nil {
		return 0, err
	}
	return t.rtnetlink.GetNetNsIdByFd(fd)
}

func (t *tap) Execute(req *nl.NetlinkRequest, answer uint16) ([][]byte, error) {
	op := "Dump"
	if req.Type == unix.RTM_NEWLINK {
		op = "Create"
	}
	if err := t.before(op); err != nil {
		return nil, err
	}
	return t.rtnetlink.Execute(req, answer)
}
