package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
)

func TestAddHostRouteConflicts(t *testing.T) {
	// The policy agent is faster with one of the routes.
	for _, preprogrammed := range []netip.Addr{podV4, podV6} {
		row(t, fmt.Sprintf("20 dual-stack with %s preprogrammed", preprogrammed), func(t *testing.T) {
			n, pod := newNode(t), newPlace(t)
			n.fault(counted(func(op string, seen int) error {
				if op == "host RouteAdd" && seen == 0 {
					n.addRoute(&netlink.Route{LinkIndex: n.link(hostName).Attrs().Index, Scope: scopeLink, Dst: ipNet(hostPrefix(preprogrammed))})
				}
				return nil
			}))
			n.mustAdd(request(pod, "c1", dualStack))
			wantList(t, "IPv4 routes of the host", n.routes(unix.AF_INET), "10.9.8.7/32 dev "+hostName+" scope link proto boot")
			wantList(t, "IPv6 routes of the host", n.routes(unix.AF_INET6), "fd00::7/128 dev "+hostName+" proto boot")
		})
	}

	row(t, "21 route already present on the same host end", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.fault(counted(func(op string, seen int) error {
			if op == "host RouteAdd" && seen == 0 {
				n.addRoute(&netlink.Route{LinkIndex: n.link(hostName).Attrs().Index, Scope: scopeLink, Dst: ipNet(hostPrefix(podV4)), Protocol: unix.RTPROT_STATIC})
			}
			return nil
		}))
		n.mustAdd(request(pod, "c1"))
		wantList(t, "IPv4 routes of the host", n.routes(unix.AF_INET), "10.9.8.7/32 dev "+hostName+" scope link proto static")
	})

	for _, address := range []netip.Addr{podV4, podV6} {
		row(t, fmt.Sprintf("22 route for %s on another interface", address), func(t *testing.T) {
			n, pod := newNode(t), newPlace(t)
			other := n.addOther("othervm")
			n.setUp(other)
			must(t, n.handle.LinkSetAlias(other, attachment("c0").Alias()))
			n.addRoute(&netlink.Route{LinkIndex: other.Attrs().Index, Scope: scopeLink, Dst: ipNet(hostPrefix(address))})
			before := append(n.routes(unix.AF_INET), n.routes(unix.AF_INET6)...)

			_, err := n.add(request(pod, "c1", withAddresses(address)))
			wantCode(t, err, cnierr.NetlinkRefused, "othervm", "container c0", hostName, hostPrefix(address).String(),
				fmt.Sprintf("index %d", other.Attrs().Index))
			wantList(t, "routes of the host", append(n.routes(unix.AF_INET), n.routes(unix.AF_INET6)...), before...)
			wantEqual(t, "our link is there", n.has(hostName), false)
		})
	}

	row(t, "22 a wider route of the same first address is no conflict", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		other := n.addOther("othervm")
		n.setUp(other)
		address := netip.MustParseAddr("10.9.8.0")
		n.addRoute(&netlink.Route{LinkIndex: other.Attrs().Index, Scope: scopeLink, Dst: ipNet(netip.PrefixFrom(address, 24))})
		n.addRoute(&netlink.Route{LinkIndex: other.Attrs().Index, Scope: scopeLink, Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0"))})
		n.mustAdd(request(pod, "c1", withAddresses(address)))
		if !slices.Contains(n.routes(unix.AF_INET), "10.9.8.0/32 dev "+hostName+" scope link proto boot") {
			t.Errorf("host routes: %q", n.routes(unix.AF_INET))
		}
	})

	t.Run("interrupted dumps are repeated", func(t *testing.T) {
		t.Parallel()
		n, pod := newNode(t), newPlace(t)
		n.fault(counted(func(op string, seen int) error {
			switch {
			case op == "host RouteAdd" && seen == 0:
				n.addRoute(&netlink.Route{LinkIndex: n.link(hostName).Attrs().Index, Scope: scopeLink, Dst: ipNet(hostPrefix(podV4))})
			case op == "host RouteList" && seen == 0:
				return netlink.ErrDumpInterrupted
			case op == "host RouteList" && seen == 1:
				return unix.EINTR
			}
			return nil
		}))
		n.mustAdd(request(pod, "c1"))
		wantEqual(t, "the number of host routes", len(n.routes(unix.AF_INET)), 1)
	})
}

func TestAddWithoutIPv6OnTheHost(t *testing.T) {
	row(t, "19 no link-local address on the host", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.withoutEUI64("1") // the kernel makes none
		start := time.Now()
		_, err := n.add(request(pod, "c1", dualStack))
		wantCode(t, err, cnierr.NetlinkRefused, hostName, "is IPv6 disabled on the host?")
		if took := time.Since(start); took < time.Second {
			t.Errorf("failed after %v: the kernel may take a second to report the carrier", took)
		}
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "19 kernel without IPv6", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.fault(func(op string) error {
			if strings.HasPrefix(op, "sysctl ipv6/conf/"+hostName) {
				return unix.ENOENT
			}
			return nil
		})
		_, err := n.add(request(pod, "c1", dualStack))
		wantCode(t, err, cnierr.NetlinkRefused, "net.ipv6.conf."+hostName+".accept_dad", "address family enabled")
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})
}

// withoutEUI64 is a host whose interfaces make their link-local addresses in
// another way, and stick to it.
func (n *node) withoutEUI64(mode string) {
	n.t.Helper()
	n.setSysctl("ipv6/conf/default/addr_gen_mode", mode)
	n.fault(func(op string) error {
		if strings.HasSuffix(op, "/addr_gen_mode") {
			return unix.ENOENT // a kernel that does not know it yet
		}
		return nil
	})
}

func TestAddMAC(t *testing.T) {
	row(t, "42 a MAC that silently was not set is set again", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.fault(counted(func(op string, seen int) error {
			if op == "host LinkSetHardwareAddr" && seen < 2 {
				return errIgnored
			}
			return nil
		}))
		n.mustAdd(request(pod, "c1"))
		wantEqual(t, "the host end's MAC", n.link(hostName).Attrs().HardwareAddr.String(), hostMAC.String())
	})

	row(t, "42 the loop ends after 5 s", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.fault(func(op string) error {
			if op == "host LinkSetHardwareAddr" {
				return errIgnored
			}
			return nil
		})
		start := time.Now()
		_, err := n.add(request(pod, "c1"))
		wantCode(t, err, cnierr.NetlinkRefused, hostName, hostMAC.String(), "5s")
		if took := time.Since(start); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("gave up after %v, want 5 s", took)
		}
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "42 a refused MAC is a warning and any link-local address will do", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.fault(func(op string) error {
			if op == "host LinkSetHardwareAddr" {
				return unix.EOPNOTSUPP
			}
			return nil
		})
		n.mustAdd(request(pod, "c1", dualStack))
		gateway := strings.TrimSuffix(n.addresses(hostName, unix.AF_INET6)[0], "/64")
		wantList(t, "IPv6 routes of the pod", pod.routes(unix.AF_INET6),
			"fd00::7/128 dev eth0 proto kernel", "::/0 via "+gateway+" dev eth0 proto boot")
	})

	row(t, "43 wrong link-local address first", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		ups := 0
		n.fault(func(op string) error {
			if op != "host LinkSetUp" {
				return nil
			}
			if ups++; ups == 1 {
				// The kernel lost the MAC after it was read back, and computes
				// the address from another one.
				wrong := []byte{0x02, 0, 0, 0, 0, 9}
				must(t, n.handle.LinkSetHardwareAddr(n.link(hostName), wrong))
			}
			return nil
		})
		n.mustAdd(request(pod, "c1", dualStack))
		wantEqual(t, "the number of times the host end was set up", ups, 2)
		wantList(t, "IPv6 addresses of the host end", n.addresses(hostName, unix.AF_INET6), "fe80::ecee:eeff:feee:eeee/64")
		wantList(t, "IPv6 routes of the pod", pod.routes(unix.AF_INET6),
			"fd00::7/128 dev eth0 proto kernel",
			"::/0 via fe80::ecee:eeff:feee:eeee dev eth0 proto boot")
	})
}

func TestAddLinkLocalStaysWrong(t *testing.T) {
	row(t, "43 link-local address stays wrong", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.withoutEUI64("3") // not from the MAC
		_, err := n.add(request(pod, "c1", dualStack))
		wantCode(t, err, cnierr.NetlinkRefused, hostName, "instead of fe80::ecee:eeff:feee:eeee")
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})
}

func TestAddNetkit(t *testing.T) {
	netkit := func(r *dataplane.Request) { r.Device = kindNetkit }

	row(t, "31 EOPNOTSUPP falls back to veth", func(t *testing.T) {
		// This kernel has no netkit, or the fault takes it away.
		n, pod := newNode(t), newPlace(t)
		n.fault(func(op string) error {
			if op == "host Create" {
				return unix.EOPNOTSUPP
			}
			return nil
		})
		n.mustAdd(request(pod, "c1", netkit))
		wantEqual(t, "the host end's kind", n.link(hostName).Type(), kindVeth)
		wantEqual(t, "the pod end's kind", pod.link("eth0").Type(), kindVeth)
	})

	for _, errno := range []unix.Errno{unix.EPERM, unix.EINVAL} {
		row(t, fmt.Sprintf("31 %s fails", unix.ErrnoName(errno)), func(t *testing.T) {
			n, pod := newNode(t), newPlace(t)
			n.fault(func(op string) error {
				if op == "host Create" {
					return errno
				}
				return nil
			})
			_, err := n.add(request(pod, "c1", netkit))
			wantCode(t, err, cnierr.NetlinkRefused, hostName, "eth0", "netkit", errno.Error())
			wantList(t, "interfaces left", append(n.names(), pod.names()...))
		})
	}

	row(t, "31 EEXIST fails after three decisions", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		creations := 0
		n.fault(func(op string) error {
			if strings.HasSuffix(op, "Create") {
				creations++
				return unix.EEXIST
			}
			return nil
		})
		_, err := n.add(request(pod, "c1", netkit))
		wantCode(t, err, cnierr.NameTaken, hostName)
		wantEqual(t, "the number of creations", creations, 3)
	})

	t.Run("EEXIST once is decided again", func(t *testing.T) {
		t.Parallel()
		n, pod, other := newNode(t), newPlace(t), newPlace(t)
		n.fault(counted(func(op string, seen int) error {
			if op == "pod Create" && seen == 0 {
				n.addVeth(hostName, other, "eth0") // a parallel ADD, soon killed
			}
			return nil
		}))
		n.mustAdd(request(pod, "c1"))
		wantList(t, "interfaces of the host", n.names(), hostName)
		wantList(t, "interfaces of the other pod", other.names())
	})
}

// TestAddUndoesItself fails every single request that ADD makes, once each.
func TestAddUndoesItself(t *testing.T) {
	t.Parallel()
	for _, op := range operationsOfAdd(t) {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			n, pod := newNode(t), newPlace(t)
			failed := false
			n.fault(countedKey(op, func() error {
				failed = true
				return errInjected
			}))
			_, err := n.add(request(pod, "c1", dualStack, func(r *dataplane.Request) {
				r.MAC = []byte{0x0a, 0, 0, 0, 0, 1}
			}))
			wantEqual(t, "the fault was injected", failed, true)
			if toleratedInAdd(op) {
				must(t, err)
				return
			}
			wantCode(t, err, cnierr.NetlinkRefused, "operation not permitted", "CAP_NET_ADMIN")
			wantList(t, "interfaces left", append(n.names(), pod.names()...))
		})
	}
}

// toleratedInAdd: these failures do not fail ADD.
func toleratedInAdd(op string) bool {
	return strings.Contains(op, "host LinkSetHardwareAddr") || strings.Contains(op, "host AddrList") || strings.Contains(op, "RouteGet") ||
		strings.Contains(op, "accept_ra") || strings.Contains(op, "proxy_delay") || strings.Contains(op, "addr_gen_mode")
}

// operationsOfAdd lists the requests of a successful ADD.
func operationsOfAdd(t *testing.T) []string {
	t.Helper()
	n, pod := newNode(t), newPlace(t)
	ops := n.record(func() {
		n.mustAdd(request(pod, "c1", dualStack, func(r *dataplane.Request) { r.MAC = []byte{0x0a, 0, 0, 0, 0, 1} }))
	})
	if len(ops) < 25 {
		t.Fatalf("only %d operations: %q", len(ops), ops)
	}
	// How often the address list is asked for depends on the machine's speed.
	return slices.DeleteFunc(ops, func(op string) bool {
		return strings.HasPrefix(op, "host AddrList") && op != "host AddrList 0"
	})
}

// operationsOf lists the requests of what is done after an ADD of c1.
func operationsOf(t *testing.T, do func(*node, *place)) []string {
	t.Helper()
	n, pod := newNode(t), newPlace(t)
	n.mustAdd(request(pod, "c1"))
	ops := n.record(func() { do(n, pod) })
	if len(ops) < 3 {
		t.Fatalf("only %d operations: %q", len(ops), ops)
	}
	return ops
}

// record lists the requests that fn makes, each with how often it was made
// before.
func (n *node) record(fn func()) []string {
	var ops []string
	n.fault(counted(func(op string, seen int) error {
		ops = append(ops, fmt.Sprintf("%s %d", op, seen))
		return nil
	}))
	fn()
	return ops
}

// countedKey fails the operation of that key.
func countedKey(key string, fail func() error) func(string) error {
	return counted(func(op string, seen int) error {
		if fmt.Sprintf("%s %d", op, seen) == key {
			return fail()
		}
		return nil
	})
}

func TestAddFailureIsJoinedWithAFailedUndo(t *testing.T) {
	t.Parallel()
	n, pod := newNode(t), newPlace(t)
	n.fault(func(op string) error {
		switch op {
		case "host RouteAdd":
			return unix.ENOBUFS
		case "host LinkDel":
			return unix.EBUSY
		}
		return nil
	})
	_, err := n.add(request(pod, "c1"))
	wantCode(t, err, cnierr.NetlinkRefused, hostName)
	if !errors.Is(err, unix.ENOBUFS) || !errors.Is(err, unix.EBUSY) {
		t.Errorf("error hides a cause: %v", err)
	}
}

func TestAddPanicIsUndone(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"pod LinkByName 1", "host LinkSetAlias 0", "host RouteAdd 0"} {
		n, pod := newNode(t), newPlace(t)
		n.fault(countedKey(op, func() error { panic(op) }))
		func() {
			defer func() { wantEqual(t, "the panic", recover(), any(op)) }()
			n.mustAdd(request(pod, "c1"))
		}()
		wantList(t, "interfaces left after "+op, append(n.names(), pod.names()...))
	}
}
