package linux

import (
	"context"
	"fmt"
	"net"
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

func (n *node) differences(want dataplane.Expectation) (diffs []string, err error) {
	n.t.Helper()
	n.do(func() { diffs, err = n.d.Differences(context.Background(), want) })
	return diffs, err
}

// checked is a connected dual-stack pod and what CHECK expects of it.
func checked(t *testing.T) (*node, *place, dataplane.Expectation) {
	t.Helper()
	n, pod := newNode(t), newPlace(t)
	n.d.kernel.convergenceLimit = 0
	made := n.mustAdd(request(pod, "c1", dualStack, func(r *dataplane.Request) { r.MTU = 1450 }))
	return n, pod, dataplane.Expectation{
		Attachment: attachment("c1"),
		Namespace:  pod.Path(),
		Addresses:  []netip.Addr{podV4, podV6},
		MAC:        made.MAC,
		MTU:        1450,
	}
}

// change is something done to a connected pod.
type change struct {
	name string
	do   func(n *node, pod *place)
	// reported is what CHECK must name.
	reported string
}

// leftColumn breaks everything that CHECK compares, one thing each.
func leftColumn() []change {
	delRoute := func(p *place, family int, dst string) {
		p.t.Helper()
		listed, err := p.handle.RouteList(nil, family)
		must(p.t, err)
		for _, r := range listed {
			if prefixOf(r, family).String() == dst {
				must(p.t, p.handle.RouteDel(&r))
				return
			}
		}
		p.t.Fatalf("no route to %s", dst)
	}
	setSysctl := func(path, value string) func(*node, *place) {
		return func(n *node, _ *place) { n.setSysctl(path, value) }
	}
	return []change{
		{"pod interface down", func(n *node, pod *place) {
			must(n.t, pod.handle.LinkSetDown(pod.link("eth0")))
		}, "interface eth0 is down"},
		{"host interface down", func(n *node, _ *place) {
			must(n.t, n.handle.LinkSetDown(n.link(hostName)))
		}, "host interface " + hostName + " is down"},
		{"alias names another", func(n *node, _ *place) {
			must(n.t, n.handle.LinkSetAlias(n.link(hostName), attachment("c2").Alias()))
		}, "belongs to container c2"},
		{"pod MAC", func(n *node, pod *place) {
			must(n.t, pod.handle.LinkSetHardwareAddr(pod.link("eth0"), net.HardwareAddr{0x0a, 0, 0, 0, 0, 9}))
		}, "MAC 0a:00:00:00:00:09"},
		{"pod MTU", func(n *node, pod *place) {
			must(n.t, pod.handle.LinkSetMTU(pod.link("eth0"), 1400))
		}, "MTU 1400 instead of 1450"},
		{"host MAC", func(n *node, _ *place) {
			must(n.t, n.handle.LinkSetHardwareAddr(n.link(hostName), net.HardwareAddr{0x0a, 0, 0, 0, 0, 9}))
		}, "instead of ee:ee:ee:ee:ee:ee"},
		{"v4 address", func(n *node, pod *place) {
			must(n.t, pod.handle.AddrDel(pod.link("eth0"), &netlink.Addr{IPNet: ipNet(hostPrefix(podV4))}))
		}, "address 10.9.8.7/32 is missing"},
		{"v6 address", func(n *node, pod *place) {
			must(n.t, pod.handle.AddrDel(pod.link("eth0"), &netlink.Addr{IPNet: ipNet(hostPrefix(podV6))}))
		}, "address fd00::7/128 is missing"},
		{"v4 gateway route", func(n *node, pod *place) { delRoute(pod, unix.AF_INET, "169.254.1.1/32") }, "link route to 169.254.1.1"},
		{"v4 default route", func(n *node, pod *place) { delRoute(pod, unix.AF_INET, "0.0.0.0/0") }, "no IPv4 route goes through 169.254.1.1"},
		{"v6 default route", func(n *node, pod *place) { delRoute(pod, unix.AF_INET6, "::/0") }, "no IPv6 route"},
		{"v4 host route", func(n *node, pod *place) { delRoute(n.place, unix.AF_INET, "10.9.8.7/32") }, "host route to 10.9.8.7/32"},
		{"v6 host route", func(n *node, pod *place) { delRoute(n.place, unix.AF_INET6, "fd00::7/128") }, "host route to fd00::7/128"},
		{"proxy_arp", setSysctl("ipv4/conf/"+hostName+"/proxy_arp", "0"), "proxy_arp"},
		{"v4 forwarding", setSysctl("ipv4/conf/"+hostName+"/forwarding", "0"), "net.ipv4.conf." + hostName + ".forwarding"},
		{"proxy_ndp", setSysctl("ipv6/conf/"+hostName+"/proxy_ndp", "0"), "proxy_ndp"},
		{"v6 forwarding", setSysctl("ipv6/conf/"+hostName+"/forwarding", "0"), "net.ipv6.conf." + hostName + ".forwarding"},
		{"disable_ipv6", setSysctl("ipv6/conf/"+hostName+"/disable_ipv6", "1"), "disable_ipv6"},
		{"pod interface gone", func(n *node, pod *place) {
			must(n.t, pod.handle.LinkDel(pod.link("eth0")))
		}, "interface eth0 is missing"},
		{"peer moved away", func(n *node, _ *place) {
			must(n.t, n.handle.LinkSetNsFd(n.link(hostName), int(newPlace(n.t).Handle())))
		}, "not in the host's network namespace"},
	}
}

// rightColumn changes what CHECK must not compare.
func rightColumn() []change {
	return []change{
		{name: "alias removed", do: func(n *node, _ *place) { must(n.t, n.handle.LinkSetAlias(n.link(hostName), "")) }},
		{name: "further pod address", do: func(n *node, pod *place) {
			must(n.t, pod.handle.AddrAdd(pod.link("eth0"), &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("192.0.2.5/24"))}))
		}},
		{name: "further pod route", do: func(n *node, pod *place) {
			pod.addRoute(&netlink.Route{LinkIndex: pod.link("eth0").Attrs().Index, Dst: ipNet(netip.MustParsePrefix("192.0.2.0/24")), Gw: net.IP{169, 254, 1, 1}})
		}},
		{name: "pod routes moved to another table", do: func(n *node, pod *place) {
			routes, err := pod.handle.RouteList(pod.link("eth0"), unix.AF_INET)
			must(n.t, err)
			// The link route first: the other needs it.
			slices.SortFunc(routes, func(a, b netlink.Route) int { return len(a.Gw) - len(b.Gw) })
			for _, r := range routes {
				moved := r
				moved.Table = 100
				pod.addRoute(&moved)
			}
			for _, r := range slices.Backward(routes) {
				must(n.t, pod.handle.RouteDel(&r))
			}
		}},
		{name: "another device of the peer's kind", do: func(n *node, pod *place) { n.addVeth("califurther", pod, "eth1") }},
		{name: "host route rewritten by the agent", do: func(n *node, _ *place) {
			rewritten := &netlink.Route{LinkIndex: n.link(hostName).Attrs().Index, Dst: ipNet(hostPrefix(podV4)),
				Scope: scopeLink, Protocol: 80, Priority: 7}
			must(n.t, n.handle.RouteDel(&netlink.Route{LinkIndex: rewritten.LinkIndex, Dst: rewritten.Dst, Scope: scopeLink}))
			n.addRoute(rewritten)
		}},
		{name: "host MTU", do: func(n *node, _ *place) { must(n.t, n.handle.LinkSetMTU(n.link(hostName), 1400)) }},
		{name: "sysctls in the pod", do: func(_ *node, pod *place) {
			pod.setSysctl("ipv4/ip_forward", "1")
			pod.setSysctl("ipv4/conf/eth0/arp_notify", "1")
			pod.setSysctl("ipv6/conf/all/forwarding", "1")
		}},
		{name: "other sysctls of the host end", do: func(n *node, _ *place) {
			n.setSysctl("ipv4/conf/"+hostName+"/rp_filter", "2")
			n.setSysctl("ipv4/conf/"+hostName+"/route_localnet", "0")
			n.setSysctl("ipv6/conf/"+hostName+"/accept_ra", "1")
		}},
	}
}

func TestCheck(t *testing.T) {
	row(t, "46 right after ADD", func(t *testing.T) {
		n, _, want := checked(t)
		diffs, err := n.differences(want)
		must(t, err)
		wantList(t, "differences", diffs)
	})

	for _, change := range leftColumn() {
		row(t, "46 "+change.name, func(t *testing.T) {
			n, pod, want := checked(t)
			change.do(n, pod)
			diffs, err := n.differences(want)
			must(t, err)
			if !strings.Contains(strings.Join(diffs, "; "), change.reported) {
				t.Errorf("CHECK does not name %q: %q", change.reported, diffs)
			}
		})
	}

	row(t, "46 three things removed, three named", func(t *testing.T) {
		n, pod, want := checked(t)
		var reported []string
		for _, change := range leftColumn() {
			if slices.Contains([]string{"v6 address", "v4 host route", "proxy_ndp"}, change.name) {
				change.do(n, pod)
				reported = append(reported, change.reported)
			}
		}
		diffs, err := n.differences(want)
		must(t, err)
		wantEqual(t, "the number of differences", len(diffs), 3)
		for _, part := range reported {
			if !strings.Contains(strings.Join(diffs, "; "), part) {
				t.Errorf("CHECK does not name %q: %q", part, diffs)
			}
		}
	})

	for _, change := range rightColumn() {
		row(t, "47 "+change.name, func(t *testing.T) {
			n, pod, want := checked(t)
			change.do(n, pod)
			diffs, err := n.differences(want)
			must(t, err)
			wantList(t, "differences", diffs)
		})
	}

	row(t, "47 MAC and MTU changed by tuning, as prevResult states", func(t *testing.T) {
		n, pod, want := checked(t)
		must(t, pod.handle.LinkSetMTU(pod.link("eth0"), 1300))
		must(t, pod.handle.LinkSetHardwareAddr(pod.link("eth0"), net.HardwareAddr{0x0a, 0, 0, 0, 0, 9}))
		want.MTU, want.MAC = 1300, "0A:00:00:00:00:09"
		diffs, err := n.differences(want)
		must(t, err)
		wantList(t, "differences", diffs)
		want.MTU, want.MAC = 0, ""
		diffs, err = n.differences(want)
		must(t, err)
		wantList(t, "differences without MTU and MAC", diffs)
	})

	row(t, "47 a family without routes, and a migration target", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.d.kernel.convergenceLimit = 0
		n.mustAdd(request(pod, "c1", dualStack, withRoutes("10.0.0.0/8"), func(r *dataplane.Request) { r.SkipHostRoutes = true }))
		want := dataplane.Expectation{Attachment: attachment("c1"), Namespace: pod.Path(), Addresses: []netip.Addr{podV4, podV6}}
		diffs, err := n.differences(want)
		must(t, err)
		wantEqual(t, fmt.Sprintf("the number of differences in %q", diffs), len(diffs), 3)
		want.RoutesUnknown, want.SkipHostRoutes = true, true
		diffs, err = n.differences(want)
		must(t, err)
		wantList(t, "differences", diffs)
	})
}

func TestCheckConverges(t *testing.T) {
	row(t, "48 host route removed and put back", func(t *testing.T) {
		n, _, want := checked(t)
		n.d.kernel.convergenceLimit = convergenceLimit
		route := &netlink.Route{LinkIndex: n.link(hostName).Attrs().Index, Scope: scopeLink, Dst: ipNet(hostPrefix(podV4))}
		must(t, n.handle.RouteDel(route))
		n.fault(counted(func(op string, seen int) error {
			// The third look begins 200 ms after the first.
			if op == "pod LinkByName" && seen == 2 {
				n.addRoute(route)
			}
			return nil
		}))
		diffs, err := n.differences(want)
		must(t, err)
		wantList(t, "differences", diffs)
	})

	row(t, "48 a lasting difference is reported after 2 s", func(t *testing.T) {
		n, _, want := checked(t)
		n.d.kernel.convergenceLimit = convergenceLimit
		want.MTU = 9000
		start := time.Now()
		diffs, err := n.differences(want)
		must(t, err)
		wantEqual(t, "the number of differences", len(diffs), 1)
		if took := time.Since(start); took < 2*time.Second || took > 5*time.Second {
			t.Errorf("took %v, want 2 s", took)
		}
	})

	t.Run("the deadline is honoured", func(t *testing.T) {
		t.Parallel()
		n, _, want := checked(t)
		n.d.kernel.convergenceLimit = time.Hour
		want.MTU = 9000
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		var err error
		n.do(func() { _, err = n.d.Differences(ctx, want) })
		wantCode(t, err, cnierr.NetlinkRefused, "eth0")
	})

	t.Run("a namespace that is gone", func(t *testing.T) {
		t.Parallel()
		n, pod, want := checked(t)
		want.Namespace = pod.Path() + "-gone"
		_, err := n.differences(want)
		wantCode(t, err, cnierr.InvalidEnvironment, want.Namespace)
	})
}

func TestForwarding(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	forwarding := func(v4, v6 bool) (err error) {
		n.do(func() { err = Forwarding(v4, v6) })
		return err
	}
	n.setSysctl("ipv4/ip_forward", "0")
	n.setSysctl("ipv6/conf/all/forwarding", "0")
	wantCode(t, forwarding(true, false), cnierr.LimitedConnectivity, "IPv4", "net.ipv4.ip_forward")
	wantCode(t, forwarding(false, true), cnierr.LimitedConnectivity, "IPv6", "net.ipv6.conf.all.forwarding")
	must(t, forwarding(false, false))
	n.setSysctl("ipv4/ip_forward", "1")
	must(t, forwarding(true, false))
	n.setSysctl("ipv6/conf/all/forwarding", "1")
	must(t, forwarding(true, true))
}
