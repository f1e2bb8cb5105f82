package pair

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
)

// checked is a pod after ADD, and what its CHECK would look at.
type checked struct {
	*host
	*pod
	conf    config
	added   outcome
	r       result
	hostEnd netlink.Link
	inside  netlink.Link
}

func newChecked(t *testing.T, conf config, args string) *checked {
	t.Helper()
	c := &checked{host: newHost(t), pod: newPod(t, "container", args), conf: conf}
	c.added = c.host.run(t, c.pod.verb(t, "ADD", conf))
	c.r = c.added.result(t)
	c.hostEnd = c.linkOf(t, c.r)
	var err error
	if c.inside, err = c.pod.links.LinkByName("eth0"); err != nil {
		t.Fatal(err)
	}
	return c
}

// breaking is one thing of linux-dataplane.md 9.2's left column that is taken
// away, and what CHECK must name then.
type breaking struct {
	name  string
	words []string
	do    func(*testing.T, *checked) error
}

// sysctl sets a sysctl of the host end.
func sysctl(family, key, value string) func(*testing.T, *checked) error {
	return func(t *testing.T, c *checked) (err error) {
		path := fmt.Sprintf("/proc/sys/net/%s/conf/%s/%s", family, c.hostEnd.Attrs().Name, key)
		c.host.network.Do(t, func() { err = os.WriteFile(path, []byte(value), 0o644) })
		return err
	}
}

func (c *checked) delRoute(handle *netlink.Handle, which func(netlink.Route) bool) error {
	routes, err := handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	for _, route := range routes {
		if route.Protocol != unix.RTPROT_KERNEL && which(route) {
			return handle.RouteDel(&route)
		}
	}
	return fmt.Errorf("there is no such route among %v", routes)
}

// delAddress takes the global address of a family off the pod.
func (c *checked) delAddress(family int) error {
	addresses, err := c.pod.links.AddrList(c.inside, family)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if address.IP.IsGlobalUnicast() {
			return c.pod.links.AddrDel(c.inside, &address)
		}
	}
	return fmt.Errorf("there is no such address among %v", addresses)
}

func hostRoute(address string) func(netlink.Route) bool {
	return func(r netlink.Route) bool { return r.Dst != nil && r.Dst.IP.String() == address }
}

var breakings = []breaking{
	{"the pod end is down", []string{"eth0"}, func(_ *testing.T, c *checked) error { return c.pod.links.LinkSetDown(c.inside) }},
	{"the host end is down", []string{"cali"}, func(_ *testing.T, c *checked) error { return c.host.links.LinkSetDown(c.hostEnd) }},
	{"the pod end is gone", []string{"eth0"}, func(_ *testing.T, c *checked) error { return c.pod.links.LinkDel(c.inside) }},
	{"the host end is another's", []string{"other"}, func(_ *testing.T, c *checked) error {
		return c.host.links.LinkSetAlias(c.hostEnd, "calico-cni/net/other/eth0")
	}},
	{"the pod end has another MAC", []string{"02:00:00:00:00:01"}, func(_ *testing.T, c *checked) error {
		return c.pod.links.LinkSetHardwareAddr(c.inside, net.HardwareAddr{2, 0, 0, 0, 0, 1})
	}},
	{"the host end has another MAC", []string{"cali"}, func(_ *testing.T, c *checked) error {
		return c.host.links.LinkSetHardwareAddr(c.hostEnd, net.HardwareAddr{2, 0, 0, 0, 0, 2})
	}},
	{"the pod end has another MTU", []string{"1400"}, func(_ *testing.T, c *checked) error { return c.pod.links.LinkSetMTU(c.inside, 1400) }},
	{"the IPv4 address is gone", []string{"10.77.0."}, func(_ *testing.T, c *checked) error { return c.delAddress(netlink.FAMILY_V4) }},
	{"the IPv6 address is gone", []string{"fd00:77:"}, func(_ *testing.T, c *checked) error { return c.delAddress(netlink.FAMILY_V6) }},
	{"the link route is gone", []string{"169.254.1.1"}, func(_ *testing.T, c *checked) error {
		return c.delRoute(c.pod.links, hostRoute("169.254.1.1"))
	}},
	{"the IPv4 default route is gone", []string{"169.254.1.1"}, func(_ *testing.T, c *checked) error {
		return c.delRoute(c.pod.links, func(r netlink.Route) bool { return r.Gw.Equal(net.IPv4(169, 254, 1, 1)) })
	}},
	{"the IPv6 default route is gone", []string{"fe80::"}, func(_ *testing.T, c *checked) error {
		return c.delRoute(c.pod.links, func(r netlink.Route) bool { return r.Gw.IsLinkLocalUnicast() && r.Gw.To4() == nil })
	}},
	{"the IPv4 host route is gone", []string{"10.77.0."}, func(_ *testing.T, c *checked) error {
		return c.delRoute(c.host.links, hostRoute(c.r.addresses()[0]))
	}},
	{"the IPv6 host route is gone", []string{"fd00:77:"}, func(_ *testing.T, c *checked) error {
		return c.delRoute(c.host.links, hostRoute(c.r.addresses()[1]))
	}},
	{"proxy_arp is off", []string{"proxy_arp"}, sysctl("ipv4", "proxy_arp", "0")},
	{"IPv4 forwarding is off", []string{"forwarding"}, sysctl("ipv4", "forwarding", "0")},
	{"proxy_ndp is off", []string{"proxy_ndp"}, sysctl("ipv6", "proxy_ndp", "0")},
	{"IPv6 forwarding is off", []string{"forwarding"}, sysctl("ipv6", "forwarding", "0")},
	{"IPv6 is disabled", []string{"disable_ipv6"}, sysctl("ipv6", "disable_ipv6", "1")},
}

// TestCheckNamesWhatIsGone takes away one thing at a time.
func TestCheckNamesWhatIsGone(t *testing.T) {
	t.Parallel()
	for _, b := range breakings {
		t.Run("Linux/46 "+b.name, func(t *testing.T) {
			t.Parallel()
			c := newChecked(t, newConfig().with("mtu", 1450), "")
			c.host.run(t, c.check(t, c.conf, c.added)).succeeds(t)
			if err := b.do(t, c); err != nil {
				t.Fatal(err)
			}
			c.host.run(t, c.check(t, c.conf, c.added)).fails(t, cnierr.CheckFailed, b.words...)
		})
	}
}

func TestCheckNamesEverything(t *testing.T) {
	t.Parallel()
	t.Run("Linux/46 three things gone", func(t *testing.T) {
		c := newChecked(t, newConfig(), "")
		routeGone := c.delRoute(c.host.links, hostRoute(c.r.addresses()[0]))
		addressGone := c.delAddress(netlink.FAMILY_V6)
		proxyOff := sysctl("ipv4", "proxy_arp", "0")(t, c)
		if routeGone != nil || addressGone != nil || proxyOff != nil {
			t.Fatal(routeGone, addressGone, proxyOff)
		}
		c.host.run(t, c.check(t, c.conf, c.added)).fails(t, cnierr.CheckFailed,
			c.r.addresses()[0], c.r.addresses()[1], "proxy_arp")
	})
}

// TestCheckOfRecordAndAllocation takes away what is in the datastore.
func TestCheckOfRecordAndAllocation(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("Linux/46 "+who.name, func(t *testing.T) {
			t.Parallel()
			c := newChecked(t, newConfig(), who.args)
			before := c.objects(t)
			record := before.under("/workloadendpoints/").keys()[0]
			c.put(t, objects{record: ""})
			c.host.run(t, c.check(t, c.conf, c.added)).fails(t, cnierr.CheckFailed, "record")
			c.put(t, objects{record: strings.Replace(before[record], "container", "somebody-else", 1)})
			c.host.run(t, c.check(t, c.conf, c.added)).fails(t, cnierr.CheckFailed, "record")
			c.put(t, objects{record: before[record]})

			for key, value := range before.under("/ipam/v2/assignment/ipv4/") {
				c.put(t, objects{key: strings.Replace(value, c.handleID(), network+".other", 1)})
			}
			c.host.run(t, c.check(t, c.conf, c.added)).fails(t, cnierr.CheckFailed, c.r.addresses()[0], c.handleID())
		})
	}
}

func TestCheckPassesOver(t *testing.T) {
	t.Parallel()
	t.Run("Linux/47 what others may change", func(t *testing.T) {
		t.Parallel()
		c := newChecked(t, newConfig(), "")
		further := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 9), Mask: net.CIDRMask(32, 32)}}
		if err := c.pod.links.AddrAdd(c.inside, further); err != nil {
			t.Fatal(err)
		}
		further.IPNet.IP = net.IPv4(192, 0, 2, 10)
		route := &netlink.Route{LinkIndex: c.inside.Attrs().Index, Dst: further.IPNet, Scope: netlink.SCOPE_LINK}
		if err := c.pod.links.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		c.rewriteHostRoute(t)
		addVeth(t, c.host.links, "other0", "other1")
		c.write(t, "/var/lib/calico/mtu", "1300")
		for key, value := range c.objects(t).under("/ippools/") {
			c.put(t, objects{key: strings.Replace(value, `"spec":{`, `"spec":{"natOutgoing":true,`, 1)})
		}
		c.host.run(t, c.check(t, c.conf.with("mtu", 1234), c.added)).succeeds(t)
	})
}

// rewriteHostRoute gives the route the protocol and the source hint that a
// policy agent would.
func (c *checked) rewriteHostRoute(t *testing.T) {
	t.Helper()
	is := hostRoute(c.r.addresses()[0])
	found, err := c.host.links.RouteList(c.hostEnd, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range found {
		if is(route) {
			if err := c.host.links.RouteDel(&route); err != nil {
				t.Fatal(err)
			}
			route.Protocol, route.Priority = 80, 7
			if err := c.host.links.RouteAdd(&route); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("there is no host route among %v", found)
}

// TestCheckWaits: the agent may be about to finish. The route comes back when
// CHECK is seen to have looked for it.
func TestCheckWaits(t *testing.T) {
	t.Parallel()
	t.Run("Linux/48 the host route removed and put back", func(t *testing.T) {
		t.Parallel()
		c := newChecked(t, newConfig(), "")
		route := &netlink.Route{
			LinkIndex: c.hostEnd.Attrs().Index, Scope: netlink.SCOPE_LINK,
			Dst: &net.IPNet{IP: net.ParseIP(c.r.addresses()[0]), Mask: net.CIDRMask(32, 32)},
		}
		if err := c.delRoute(c.host.links, hostRoute(c.r.addresses()[0])); err != nil {
			t.Fatal(err)
		}
		back := time.AfterFunc(700*time.Millisecond, func() {
			if err := c.host.links.RouteAdd(route); err != nil {
				t.Errorf("putting the route back: %v", err)
			}
		})
		defer back.Stop()
		c.host.run(t, c.check(t, c.conf, c.added)).succeeds(t)
	})
}

func TestCheckNeedsPrevResult(t *testing.T) {
	t.Parallel()
	c := newChecked(t, newConfig(), "")
	c.host.run(t, c.verb(t, "CHECK", c.conf)).fails(t, cnierr.InvalidConfiguration, "prevResult")
}
