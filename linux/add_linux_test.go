package linux

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
)

func TestAddLink(t *testing.T) {
	row(t, "1 host MAC", func(t *testing.T) {
		n := newNode(t)
		n.mustAdd(request(newPlace(t), "c1"))
		wantEqual(t, "the host end's MAC", n.link(hostName).Attrs().HardwareAddr.String(), "ee:ee:ee:ee:ee:ee")
	})

	for _, device := range []string{kindVeth, kindNetkit} {
		row(t, "7 MTU 1450 with "+device, func(t *testing.T) {
			n, pod := newNode(t), newPlace(t)
			n.mustAdd(request(pod, "c1", func(r *dataplane.Request) { r.MTU, r.Device = 1450, device }))
			wantEqual(t, "the host end's MTU", n.link(hostName).Attrs().MTU, 1450)
			wantEqual(t, "the pod end's MTU", pod.link("eth0").Attrs().MTU, 1450)
		})
	}

	row(t, "8 MTU 0 is the kernel's default", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		wantEqual(t, "the host end's MTU", n.link(hostName).Attrs().MTU, 1500)
		wantEqual(t, "the pod end's MTU", pod.link("eth0").Attrs().MTU, 1500)
	})

	row(t, "9 four queues", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", func(r *dataplane.Request) { r.Queues = 4 }))
		for _, l := range []netlink.Link{n.link(hostName), pod.link("eth0")} {
			wantEqual(t, "TX queues of "+l.Attrs().Name, l.Attrs().NumTxQueues, 4)
			wantEqual(t, "RX queues of "+l.Attrs().Name, l.Attrs().NumRxQueues, 4)
		}
	})

	row(t, "27 hwAddr sets the container MAC", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		made := n.mustAdd(request(pod, "c1", func(r *dataplane.Request) {
			r.MAC = net.HardwareAddr{0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f}
		}))
		wantEqual(t, "the result's MAC", made.MAC, "0a:0b:0c:0d:0e:0f")
		wantEqual(t, "the pod end's MAC", pod.link("eth0").Attrs().HardwareAddr.String(), made.MAC)
	})

	row(t, "27 without hwAddr the kernel's MAC is reported", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		made := n.mustAdd(request(pod, "c1"))
		wantEqual(t, "the result's MAC", made.MAC, pod.link("eth0").Attrs().HardwareAddr.String())
		wantEqual(t, "the result's index", made.Index, n.link(hostName).Attrs().Index)
	})

	row(t, "28 invalid hwAddr", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		_, err := n.add(request(pod, "c1", func(r *dataplane.Request) {
			r.MAC = net.HardwareAddr{0x01, 0, 0, 0, 0, 1} // multicast
		}))
		wantCode(t, err, cnierr.NetlinkRefused, "01:00:00:00:00:01", "eth0")
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "44 alias", func(t *testing.T) {
		n := newNode(t)
		n.mustAdd(request(newPlace(t), "c1"))
		wantEqual(t, "the alias", n.link(hostName).Attrs().Alias, "calico-cni/k8s-pod-network/c1/eth0")
	})

	row(t, "44 alias of a long id", func(t *testing.T) {
		n, id := newNode(t), strings.Repeat("x", 300)
		n.mustAdd(request(newPlace(t), id))
		alias := n.link(hostName).Attrs().Alias
		wantEqual(t, "the alias", alias, attachment(id).Alias())
		if !strings.HasPrefix(alias, "calico-cni/k8s-pod-network/sha256-") {
			t.Errorf("alias %q has no digest", alias)
		}
	})
}

func TestAddAddresses(t *testing.T) {
	row(t, "2 host has no IPv4 address", func(t *testing.T) {
		n := newNode(t)
		n.mustAdd(request(newPlace(t), "c1", dualStack))
		addresses, err := n.handle.AddrList(nil, unix.AF_INET)
		must(t, err)
		wantEqual(t, "the number of IPv4 addresses on the host", len(addresses), 0)
	})

	row(t, "3 pod has exactly its addresses", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", dualStack))
		wantList(t, "IPv4 addresses", pod.addresses("eth0", unix.AF_INET), "10.9.8.7/32")
		var global []string
		for _, address := range pod.addresses("eth0", unix.AF_INET6) {
			if !strings.HasPrefix(address, "fe80:") {
				global = append(global, address)
			}
		}
		wantList(t, "IPv6 addresses", global, "fd00::7/128")
		listed, err := pod.handle.AddrList(pod.link("eth0"), unix.AF_INET)
		must(t, err)
		wantEqual(t, "the broadcast address", listed[0].Broadcast.String(), net.IP(nil).String())
	})

	for _, address := range []string{"10.9.8.0", "10.9.8.255"} {
		row(t, "40 pod address "+address, func(t *testing.T) {
			n, pod := newNode(t), newPlace(t)
			n.mustAdd(request(pod, "c1", withAddresses(netip.MustParseAddr(address))))
			wantList(t, "IPv4 addresses", pod.addresses("eth0", unix.AF_INET), address+"/32")
			n.wantReachable(address)
		})
	}

	row(t, "40 a plain pod answers", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", dualStack))
		n.wantReachable("10.9.8.7")
	})

	row(t, "40 a plain pod answers on IPv6", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", dualStack))
		n.wantReachable("fd00::7")
	})
}

// wantReachable pings from the host.
func (n *node) wantReachable(address string) {
	n.t.Helper()
	// The source address of the ping is on the loopback, which needs no time
	// to come up.
	lo, source := n.link("lo"), "192.0.2.1/32"
	if strings.Contains(address, ":") {
		source = "fd00:ffff::1/128"
	}
	must(n.t, n.handle.LinkSetUp(lo))
	must(n.t, n.handle.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(source))}))
	// Any host has a default route; without one the kernel would not answer
	// ARP for the pod's gateway.
	uplink := n.link(uplinkName)
	n.setUp(uplink)
	n.addRoute(&netlink.Route{LinkIndex: uplink.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0"))})
	n.do(func() {
		// One answer is enough: the first packet may be lost while the uplink
		// is coming up.
		out, err := exec.Command("ping", "-c1", "-i0.2", "-w5", address).CombinedOutput()
		if err != nil {
			n.t.Errorf("ping %s: %v\n%s", address, err, out)
		}
	})
}

func TestAddRoutes(t *testing.T) {
	row(t, "4 pod v4 table", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		wantList(t, "IPv4 routes of the pod", pod.routes(unix.AF_INET),
			"0.0.0.0/0 via 169.254.1.1 dev eth0 scope universe proto boot",
			"169.254.1.1/32 dev eth0 scope link proto boot")
	})

	row(t, "5 pod v6 table", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", dualStack))
		wantList(t, "IPv6 routes of the pod", pod.routes(unix.AF_INET6),
			"fd00::7/128 dev eth0 proto kernel",
			"::/0 via fe80::ecee:eeff:feee:eeee dev eth0 proto boot")
		wantList(t, "IPv6 addresses of the host end", n.addresses(hostName, unix.AF_INET6), "fe80::ecee:eeff:feee:eeee/64")
	})

	row(t, "6 host route", func(t *testing.T) {
		n := newNode(t)
		n.mustAdd(request(newPlace(t), "c1"))
		wantList(t, "IPv4 routes of the host", n.routes(unix.AF_INET), "10.9.8.7/32 dev "+hostName+" scope link proto boot")
	})

	row(t, "17 v6-only pod", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		before := pod.sysctls("ipv4") + pod.sysctls("ipv4/conf/all")
		n.mustAdd(request(pod, "c1", withAddresses(podV6)))
		wantList(t, "IPv4 routes of the pod", pod.routes(unix.AF_INET))
		wantList(t, "IPv4 routes of the host", n.routes(unix.AF_INET))
		wantEqual(t, "IPv4 sysctls of the pod", pod.sysctls("ipv4")+pod.sysctls("ipv4/conf/all"), before)
	})

	row(t, "23 host routes skipped", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", dualStack, func(r *dataplane.Request) { r.SkipHostRoutes = true }))
		wantList(t, "IPv4 routes of the host", n.routes(unix.AF_INET))
		wantList(t, "IPv6 routes of the host", n.routes(unix.AF_INET6))
		wantList(t, "IPv4 addresses of the pod", pod.addresses("eth0", unix.AF_INET), "10.9.8.7/32")
		wantEqual(t, "proxy_arp", n.sysctl("ipv4/conf/"+hostName+"/proxy_arp"), "1")
		wantEqual(t, "the number of IPv4 routes of the pod", len(pod.routes(unix.AF_INET)), 2)
	})

	row(t, "24 custom routes", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", dualStack, withRoutes("10.0.0.0/8", "fd00:1::/64")))
		wantList(t, "IPv4 routes of the pod", pod.routes(unix.AF_INET),
			"10.0.0.0/8 via 169.254.1.1 dev eth0 scope universe proto boot",
			"169.254.1.1/32 dev eth0 scope link proto boot")
		wantList(t, "IPv6 routes of the pod", pod.routes(unix.AF_INET6),
			"fd00::7/128 dev eth0 proto kernel",
			"fd00:1::/64 via fe80::ecee:eeff:feee:eeee dev eth0 proto boot")
	})

	row(t, "25 custom and default routes", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", withRoutes("0.0.0.0/0", "::/0", "10.0.0.0/8")))
		wantList(t, "IPv4 routes of the pod", pod.routes(unix.AF_INET),
			"0.0.0.0/0 via 169.254.1.1 dev eth0 scope universe proto boot",
			"10.0.0.0/8 via 169.254.1.1 dev eth0 scope universe proto boot",
			"169.254.1.1/32 dev eth0 scope link proto boot")
	})

	row(t, "26 custom v4 route only, v6 address", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", dualStack, withRoutes("10.0.0.0/8")))
		wantList(t, "IPv6 routes of the pod", pod.routes(unix.AF_INET6), "fd00::7/128 dev eth0 proto kernel")
	})

	row(t, "41 repeated ADD of a new sandbox", func(t *testing.T) {
		n, first, second := newNode(t), newPlace(t), newPlace(t)
		n.mustAdd(request(first, "c1"))
		n.mustAdd(request(second, "c2", withAddresses(netip.MustParseAddr("10.9.8.8")), func(r *dataplane.Request) {
			r.RecordAtStart = dataplane.Record{ContainerID: "c1", InterfaceName: hostName, Addresses: []netip.Addr{podV4}}
		}))
		wantList(t, "interfaces of the host", n.names(), hostName)
		wantList(t, "IPv4 routes of the host", n.routes(unix.AF_INET), "10.9.8.8/32 dev "+hostName+" scope link proto boot")
		wantList(t, "interfaces of the first sandbox", first.names())
	})
}

func TestAddSysctls(t *testing.T) {
	row(t, "11 host v4 sysctls", func(t *testing.T) {
		n := newNode(t)
		n.mustAdd(request(newPlace(t), "c1"))
		wantEqual(t, "proxy_arp", n.sysctl("ipv4/conf/"+hostName+"/proxy_arp"), "1")
		wantEqual(t, "forwarding", n.sysctl("ipv4/conf/"+hostName+"/forwarding"), "1")
		wantEqual(t, "route_localnet", n.sysctl("ipv4/conf/"+hostName+"/route_localnet"), "1")
		wantEqual(t, "proxy_delay", n.sysctl("ipv4/neigh/"+hostName+"/proxy_delay"), "0")
	})

	row(t, "12 host v6 sysctls", func(t *testing.T) {
		n := newNode(t)
		n.mustAdd(request(newPlace(t), "c1", dualStack))
		conf := "ipv6/conf/" + hostName
		wantEqual(t, "proxy_ndp", n.sysctl(conf+"/proxy_ndp"), "1")
		wantEqual(t, "forwarding", n.sysctl(conf+"/forwarding"), "1")
		wantEqual(t, "accept_dad", n.sysctl(conf+"/accept_dad"), "0")
		wantEqual(t, "disable_ipv6", n.sysctl(conf+"/disable_ipv6"), "0")
	})

	row(t, "13 accept_ra also for v4-only pods", func(t *testing.T) {
		n := newNode(t)
		n.mustAdd(request(newPlace(t), "c1"))
		wantEqual(t, "accept_ra", n.sysctl("ipv6/conf/"+hostName+"/accept_ra"), "0")
	})

	row(t, "13 accept_ra may fail", func(t *testing.T) {
		n := newNode(t)
		n.fault(func(op string) error {
			if strings.HasSuffix(op, "/accept_ra") || strings.HasSuffix(op, "/proxy_delay") {
				return unix.ENOENT
			}
			return nil
		})
		n.mustAdd(request(newPlace(t), "c1"))
		wantList(t, "interfaces of the host", n.names(), hostName)
	})

	row(t, "14 ip_forward of the pod is 0", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		pod.setSysctl("ipv4/ip_forward", "1")
		pod.setSysctl("ipv6/conf/all/forwarding", "1")
		n.mustAdd(request(pod, "c1", dualStack))
		wantEqual(t, "ip_forward", pod.sysctl("ipv4/ip_forward"), "0")
		wantEqual(t, "v6 all.forwarding", pod.sysctl("ipv6/conf/all/forwarding"), "0")
	})

	row(t, "15 allow_ip_forwarding", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", dualStack, func(r *dataplane.Request) { r.AllowIPForwarding = true }))
		wantEqual(t, "ip_forward", pod.sysctl("ipv4/ip_forward"), "1")
		wantEqual(t, "v6 all.forwarding", pod.sysctl("ipv6/conf/all/forwarding"), "1")
	})

	row(t, "16 v4-only pod keeps its v6 sysctls", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		pod.setSysctl("ipv6/conf/all/disable_ipv6", "1")
		pod.setSysctl("ipv6/conf/all/forwarding", "1")
		before := pod.sysctls("ipv6/conf/all") + pod.sysctls("ipv6/conf/default") + pod.sysctls("ipv6/conf/lo")
		n.mustAdd(request(pod, "c1"))
		wantEqual(t, "v6 sysctls", pod.sysctls("ipv6/conf/all")+pod.sysctls("ipv6/conf/default")+pod.sysctls("ipv6/conf/lo"), before)
		wantEqual(t, "accept_dad of eth0", pod.sysctl("ipv6/conf/eth0/accept_dad"), pod.sysctl("ipv6/conf/default/accept_dad"))
	})

	row(t, "18 IPv6 disabled in the pod is enabled", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		pod.setSysctl("ipv6/conf/all/disable_ipv6", "1")
		pod.setSysctl("ipv6/conf/default/disable_ipv6", "1")
		n.mustAdd(request(pod, "c1", dualStack))
		wantEqual(t, "all.disable_ipv6", pod.sysctl("ipv6/conf/all/disable_ipv6"), "0")
		n.wantReachable("fd00::7")
	})
}

func TestAddTouchesNothingElse(t *testing.T) {
	row(t, "39 no neighbour, bridge, rule or rp_filter change", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.setSysctl("ipv4/conf/default/rp_filter", "2")
		global := func() string {
			return n.sysctls("ipv4") + n.sysctls("ipv4/conf/all") + n.sysctls("ipv4/conf/default") +
				n.sysctls("ipv6/conf/all") + n.sysctls("ipv6/conf/default")
		}
		before := global()
		n.mustAdd(request(pod, "c1", dualStack))

		wantEqual(t, "rp_filter of the host end", n.sysctl("ipv4/conf/"+hostName+"/rp_filter"), "2")
		wantEqual(t, "the global sysctls of the host", global(), before)
		wantList(t, "interfaces of the host", n.names(), hostName)
		for _, p := range []*place{n.place, pod} {
			neighbours, err := p.handle.NeighList(0, 0)
			must(t, err)
			for _, neighbour := range neighbours {
				if neighbour.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 && !neighbour.IP.IsMulticast() && !neighbour.IP.IsUnspecified() {
					t.Errorf("neighbour entry %v", neighbour.IP)
				}
			}
			p.do(func() {
				out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
				must(t, err)
				wantEqual(t, "the ruleset", string(bytes.TrimSpace(out)), "")
			})
		}
	})
}

func TestAddHonoursItsContext(t *testing.T) {
	t.Parallel()
	n, pod := newNode(t), newPlace(t)
	ctx, cancel := context.WithCancel(context.Background())
	n.fault(func(op string) error {
		if op == "host LinkSetUp" {
			cancel()
		}
		return nil
	})
	var err error
	n.do(func() { _, err = n.d.Add(ctx, request(pod, "c1")) })
	wantCode(t, err, cnierr.NetlinkRefused, hostName, "context canceled")
	wantList(t, "interfaces left", append(n.names(), pod.names()...))
}
