package linux

import (
	"net/netip"
	"reflect"
	"testing"

	"calico-cni/pkg/dataplane"
)

func TestDesire(t *testing.T) {
	t.Parallel()
	req := dataplane.Request{
		Attachment: decideAttachment("own", "eth0"),
		Device:     kindVeth,
		MTU:        1450,
		Addresses:  []netip.Addr{netip.MustParseAddr("::ffff:10.9.8.7"), netip.MustParseAddr("fd00::7")},
		Routes:     []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("0.0.0.0/0")},
	}
	want := desired{
		pair:  pair{kind: kindVeth, hostName: "cali1", podName: "eth0", mtu: 1450, queues: 1},
		alias: "calico-cni/net/own/eth0",
		v4:    true,
		v6:    true,
		beforeUp: []sysctl{
			{path: "ipv6/conf/eth0/accept_dad", value: "0"},
		},
		host: []sysctl{
			{path: "ipv4/conf/cali1/route_localnet", value: "1"},
			{path: "ipv4/neigh/cali1/proxy_delay", value: "0", optional: true},
			{path: "ipv4/conf/cali1/proxy_arp", value: "1", lasting: true},
			{path: "ipv4/conf/cali1/forwarding", value: "1", lasting: true},
			{path: "ipv6/conf/cali1/accept_dad", value: "0"},
			{path: "ipv6/conf/cali1/disable_ipv6", value: "0", lasting: true},
			{path: "ipv6/conf/cali1/addr_gen_mode", value: "0", optional: true},
			{path: "ipv6/conf/cali1/proxy_ndp", value: "1", lasting: true},
			{path: "ipv6/conf/cali1/forwarding", value: "1", lasting: true},
			{path: "ipv6/conf/cali1/accept_ra", value: "0", optional: true},
		},
		routesV4: []route{
			{destination: netip.MustParsePrefix("169.254.1.1/32"), scope: scopeLink},
			{destination: netip.MustParsePrefix("10.0.0.0/8"), gateway: netip.MustParseAddr("169.254.1.1")},
			{destination: netip.MustParsePrefix("0.0.0.0/0"), gateway: netip.MustParseAddr("169.254.1.1")},
		},
		enableV6: []sysctl{
			{path: "ipv6/conf/all/disable_ipv6", value: "0"},
			{path: "ipv6/conf/default/disable_ipv6", value: "0"},
			{path: "ipv6/conf/lo/disable_ipv6", value: "0"},
		},
		routesV6:  []netip.Prefix{netip.MustParsePrefix("::/0")},
		addresses: []netip.Prefix{netip.MustParsePrefix("10.9.8.7/32"), netip.MustParsePrefix("fd00::7/128")},
		forwarding: []sysctl{
			{path: "ipv4/ip_forward", value: "0"},
			{path: "ipv6/conf/all/forwarding", value: "0"},
		},
		hostRoutes: []route{
			{destination: netip.MustParsePrefix("10.9.8.7/32"), scope: scopeLink},
			{destination: netip.MustParsePrefix("fd00::7/128"), scope: scopeLink},
		},
		linkLocalV6: netip.MustParseAddr("fe80::ecee:eeff:feee:eeee"),
	}
	if got := desire(req, "cali1"); !reflect.DeepEqual(got, want) {
		t.Errorf("desired state:\n got %+v\nwant %+v", got, want)
	}
}

func TestDesireOneFamily(t *testing.T) {
	t.Parallel()
	v4 := desire(dataplane.Request{Addresses: []netip.Addr{netip.MustParseAddr("10.9.8.7")}, Routes: []netip.Prefix{netip.MustParsePrefix("::/0")}}, "cali1")
	if v4.v6 || v4.beforeUp != nil || v4.enableV6 != nil || v4.routesV6 != nil || len(v4.forwarding) != 1 || len(v4.host) != 5 {
		t.Errorf("a v4-only pod gets IPv6: %+v", v4)
	}
	v6 := desire(dataplane.Request{Addresses: []netip.Addr{netip.MustParseAddr("fd00::7")}, SkipHostRoutes: true}, "cali1")
	if v6.v4 || v6.routesV4 != nil || len(v6.forwarding) != 1 || len(v6.host) != 6 || v6.hostRoutes != nil {
		t.Errorf("a v6-only pod gets IPv4, or a host route it must not have: %+v", v6)
	}
}

func TestSysctlName(t *testing.T) {
	t.Parallel()
	s := sysctl{path: "ipv4/conf/eth0.7/proxy_arp"}
	if got := s.name(); got != "net.ipv4.conf.eth0/7.proxy_arp" {
		t.Errorf("name is %q", got)
	}
}

func TestRouteJudgement(t *testing.T) {
	t.Parallel()
	v4 := route{destination: netip.MustParsePrefix("10.9.8.7/32"), link: 5, scope: scopeLink}
	v6 := route{destination: netip.MustParsePrefix("fd00::7/128"), link: 5, scope: scopeLink}
	tests := []struct {
		name  string
		want  route
		found route
		same  bool
	}{
		{"identical", v4, v4, true},
		{"other interface", v4, route{destination: v4.destination, link: 6, scope: scopeLink}, false},
		{"other scope, IPv4", v4, route{destination: v4.destination, link: 5, scope: scopeUniverse}, false},
		{"other scope, IPv6", v6, route{destination: v6.destination, link: 5, scope: scopeUniverse}, true},
		{"other prefix length", v4, route{destination: netip.MustParsePrefix("10.9.8.7/31"), link: 5, scope: scopeLink}, false},
		{"default route", v4, route{destination: netip.MustParsePrefix("0.0.0.0/0"), link: 5, scope: scopeLink}, false},
	}
	for _, test := range tests {
		if got := findAccepted(test.want, []route{test.found}); got != test.same {
			t.Errorf("%s: accepted is %v, want %v", test.name, got, test.same)
		}
	}
	if conflict, ok := findConflict(v4, []route{v6, tests[1].found, v4}); !ok || conflict != tests[1].found {
		t.Errorf("the conflict found is %v, %v", conflict, ok)
	}
	if got, want := tests[2].found.String(), "10.9.8.7/32 scope global, interface index 5"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
}
