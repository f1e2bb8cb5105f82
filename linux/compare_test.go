package linux

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"calico-cni/pkg/dataplane"
)

// asExpected is a host on which everything is as CHECK wants it.
func asExpected() (dataplane.Expectation, observed) {
	linkLocal := linkLocalOf(hostMAC)
	want := dataplane.Expectation{
		Attachment: decideAttachment("own", "eth0"),
		Namespace:  "/run/netns/pod",
		Addresses:  []netip.Addr{netip.MustParseAddr("10.9.8.7"), netip.MustParseAddr("fd00::7")},
		MAC:        "0a:00:00:00:00:01",
		MTU:        1450,
	}
	host := hostLink("own", "eth0")
	host.up, host.mac = true, hostMAC
	got := observed{
		pod:          &link{index: 2, name: "eth0", kind: kindNetkit, up: true, mtu: 1450, mac: net.HardwareAddr{0x0a, 0, 0, 0, 0, 1}},
		host:         &host,
		podAddresses: hostPrefixes(want.Addresses),
		podRoutes: append(podRoutesV4([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}),
			route{destination: netip.MustParsePrefix("::/0"), gateway: linkLocal}),
		linkLocals: []netip.Addr{linkLocal},
		hostRoutes: hostRoutes(want.Addresses),
		sysctls:    map[string]string{},
	}
	for _, s := range lasting(hostSysctls(host.name, true, true)) {
		got.sysctls[s.path] = s.value
	}
	return want, got
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(*dataplane.Expectation, *observed)
		want []string
	}{
		{"as expected", func(*dataplane.Expectation, *observed) {}, nil},
		{"pod interface missing", func(_ *dataplane.Expectation, o *observed) { o.pod = nil },
			[]string{"interface eth0 is missing in network namespace /run/netns/pod"}},
		{"peer missing", func(_ *dataplane.Expectation, o *observed) { o.host = nil },
			[]string{"the peer of interface eth0 is not in the host's network namespace"}},
		{"wrong kind", func(_ *dataplane.Expectation, o *observed) { o.pod.kind = "macvlan" },
			[]string{"interface eth0 is a macvlan, neither veth nor netkit"}},
		{"alias absent", func(_ *dataplane.Expectation, o *observed) { o.host.alias = "" }, nil},
		{"alias another's", func(_ *dataplane.Expectation, o *observed) { o.host.alias = "calico-cni/n/c/eth0" },
			[]string{"host interface cali1 belongs to container c, interface eth0, network n by its alias"}},
		{"MAC upper case", func(e *dataplane.Expectation, _ *observed) { e.MAC = "0A:00:00:00:00:01" }, nil},
		{"three at once", func(_ *dataplane.Expectation, o *observed) {
			o.pod.up, o.host.up, o.hostRoutes = false, false, o.hostRoutes[:1]
		},
			[]string{"interface eth0 is down", "host interface cali1 is down", "the host route to fd00::7/128 through cali1 is missing"}},
		{"address with another prefix length", func(_ *dataplane.Expectation, o *observed) {
			o.podAddresses[0] = netip.MustParsePrefix("10.9.8.7/24")
		}, []string{"address 10.9.8.7/32 is missing on interface eth0"}},
		{"routes unknown", func(e *dataplane.Expectation, o *observed) { e.RoutesUnknown, o.podRoutes = true, o.podRoutes[:1] }, nil},
		{"migration target", func(e *dataplane.Expectation, o *observed) { e.SkipHostRoutes, o.hostRoutes = true, nil }, nil},
		{"sysctl unreadable", func(_ *dataplane.Expectation, o *observed) { delete(o.sysctls, "ipv4/conf/cali1/proxy_arp") },
			[]string{`sysctl net.ipv4.conf.cali1.proxy_arp is "" instead of "1"`}},
	}
	for _, test := range tests {
		t.Run("Linux/46/table/"+test.name, func(t *testing.T) {
			want, got := asExpected()
			test.do(&want, &got)
			if diffs := differences(want, got); !slices.Equal(diffs, test.want) {
				t.Errorf("differences:\n got %q\nwant %q", diffs, test.want)
			}
		})
	}
}
