package annotation

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/model"
)

// everything allows a pod whatever there is.
func everything() Allowed {
	return Allowed{CalicoIPAM: true, AddressesWithoutIPAM: true, FloatingIPs: true}
}

func hostLocal() Allowed { return Allowed{AddressesWithoutIPAM: true, FloatingIPs: true} }

type annotations map[string]string

func read(namespace, pod annotations, allowed Allowed) (Wishes, error) {
	return Read(&model.Namespace{Metadata: model.Metadata{Name: "shop", Annotations: namespace}},
		&model.Pod{Metadata: model.Metadata{Name: "web-0", Namespace: "shop", Annotations: pod}}, allowed)
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func TestRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		namespace, pod annotations
		allowed        Allowed
		want           Wishes
	}{
		"nothing": {nil, nil, everything(), Wishes{}},
		"Network/18 the pod's pools win by family": {
			annotations{IPv4Pools: `["ns4"]`, IPv6Pools: `["ns6"]`}, annotations{IPv4Pools: `["10.77.0.0/16", "p"]`}, everything(),
			Wishes{Pools4: []string{"10.77.0.0/16", "p"}, Pools6: []string{"ns6"}},
		},
		"Network/18 an empty list allows all": {
			annotations{IPv4Pools: `["ns4"]`}, annotations{IPv4Pools: `[]`}, everything(), Wishes{Pools4: []string{}},
		},
		"Network/18 an empty text is absent": {
			annotations{IPv4Pools: `["ns4"]`}, annotations{IPv4Pools: ``}, everything(), Wishes{Pools4: []string{"ns4"}},
		},
		"Network/19 pools and families of another IPAM": {
			annotations{IPFamilies: `["IPX"]`}, annotations{IPv4Pools: `no list`}, hostLocal(), Wishes{},
		},
		"Network/20 the pod's families win": {
			annotations{IPFamilies: `["IPv4"]`}, annotations{IPFamilies: `["IPv6"]`}, everything(), Wishes{Families: []model.Family{model.IPv6}},
		},
		"Network/20 both families": {
			annotations{IPFamilies: `["IPv6","IPv4"]`}, nil, everything(), Wishes{Families: []model.Family{model.IPv6, model.IPv4}},
		},
		"Network/25 addresses": {
			nil, annotations{IPAddrs: `["10.77.0.9", "fd00::9"]`}, everything(), Wishes{Addresses: addrs("10.77.0.9", "fd00::9")},
		},
		"addresses mean the pod's only": {annotations{IPAddrs: `["10.77.0.9"]`, FloatingIPs: `["10.0.0.1"]`, HWAddr: "x"}, nil, everything(), Wishes{}},
		"Network/23 addresses without IPAM": {
			nil, annotations{IPAddrsNoIPAM: `["10.77.0.9"]`}, everything(), Wishes{AddressesWithoutIPAM: addrs("10.77.0.9")},
		},
		"Network/27 floating addresses": {nil, annotations{FloatingIPs: `["192.0.2.1","192.0.2.2"]`}, hostLocal(), Wishes{FloatingIPs: addrs("192.0.2.1", "192.0.2.2")}},
		"Network/30 hwAddr":             {nil, annotations{HWAddr: "1C-0C-0A-C0-FF-EE"}, hostLocal(), Wishes{MAC: []byte{0x1c, 0x0c, 0x0a, 0xc0, 0xff, 0xee}}},
		"Network/29 allowedSourcePrefixes": {
			nil, annotations{AllowedSourcePrefixes: `["10.1.2.3/24","fd00::1/64"]`}, hostLocal(),
			Wishes{SourcePrefixes: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("fd00::/64")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := read(test.namespace, test.pod, test.allowed); err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	nothing := Allowed{CalicoIPAM: true}
	for name, test := range map[string]struct {
		namespace, pod annotations
		allowed        Allowed
		words          string
	}{
		"Network/18 bad JSON":                {annotations{IPv4Pools: `["p`}, nil, everything(), "ipv4pools of namespace shop"},
		"Network/18 not texts":               {nil, annotations{IPv6Pools: `[1]`}, everything(), "ipv6pools of pod shop/web-0"},
		"Network/18 null":                    {nil, annotations{IPv4Pools: `null`}, everything(), "ipv4pools"},
		"Network/20 no such family":          {nil, annotations{IPFamilies: `["IPX"]`}, everything(), "IPX"},
		"Network/20 spelled otherwise":       {nil, annotations{IPFamilies: `["ipv4"]`}, everything(), "ipv4"},
		"Network/20 none":                    {nil, annotations{IPFamilies: `[]`}, everything(), "empty"},
		"Network/21 both kinds of addresses": {nil, annotations{IPAddrs: `["10.0.0.1"]`, IPAddrsNoIPAM: `["10.0.0.1"]`}, everything(), "ipAddrsNoIpam"},
		"Network/22 two of IPv4":             {nil, annotations{IPAddrs: `["10.0.0.1","10.0.0.2"]`}, everything(), "more than one IPv4"},
		"Network/22 two of IPv6, no IPAM":    {nil, annotations{IPAddrsNoIPAM: `["::1","::2"]`}, everything(), "more than one IPv6"},
		"Network/22 two of IPv4, one mapped": {nil, annotations{IPAddrs: `["10.0.0.1","::ffff:10.0.0.2"]`}, everything(), "more than one IPv4"},
		"Network/22 empty":                   {nil, annotations{IPAddrs: `[]`}, everything(), "empty"},
		"Network/22 empty, no IPAM":          {nil, annotations{IPAddrsNoIPAM: `[]`}, everything(), "empty"},
		"Network/22 no address":              {nil, annotations{IPAddrs: `["10.0.0.1/32"]`}, everything(), "10.0.0.1/32"},
		"Network/22 a zone":                  {nil, annotations{IPAddrs: `["fe80::1%eth0"]`}, everything(), "zone"},
		"Network/23 without the flag":        {nil, annotations{IPAddrsNoIPAM: `["10.0.0.1"]`}, nothing, "feature_control.ip_addrs_no_ipam"},
		"Network/24 ipAddrs":                 {nil, annotations{IPAddrs: `["10.0.0.1"]`}, hostLocal(), "calico-ipam"},
		"Network/24 ipAddrsNoIpam":           {nil, annotations{IPAddrsNoIPAM: `["10.0.0.1"]`}, hostLocal(), "calico-ipam"},
		"Network/27 without the flag":        {nil, annotations{FloatingIPs: `["10.0.0.1"]`}, nothing, "feature_control.floating_ips"},
		"Network/27 no address":              {nil, annotations{FloatingIPs: `["x"]`}, everything(), `"x"`},
		"Network/29 no JSON":                 {nil, annotations{AllowedSourcePrefixes: `10.0.0.0/8`}, everything(), "JSON"},
		"Network/29 no CIDR":                 {nil, annotations{AllowedSourcePrefixes: `["10.0.0.1"]`}, everything(), "CIDR"},
		"Network/30 no MAC":                  {nil, annotations{HWAddr: `zz`}, everything(), "hwAddr of pod shop/web-0"},
		"Network/30 too long":                {nil, annotations{HWAddr: `02:00:5e:10:00:00:00:01`}, everything(), "MAC"},
		"Network/30 a group":                 {nil, annotations{HWAddr: `01:00:5e:00:00:01`}, everything(), "single interface"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := read(test.namespace, test.pod, test.allowed)
			if cnierr.CodeOf(err) != cnierr.InvalidAnnotation || !strings.Contains(err.Error(), test.words) {
				t.Errorf("code %d, %v; want 107 and %q", cnierr.CodeOf(err), err, test.words)
			}
		})
	}
}

func TestNATs(t *testing.T) {
	t.Parallel()
	wishes := Wishes{FloatingIPs: addrs("192.0.2.1", "2001:db8::1", "192.0.2.2")}
	nats, err := wishes.NATs(addrs("10.77.0.9", "fd00::9"))
	want := []model.IPNAT{
		{InternalIP: "10.77.0.9", ExternalIP: "192.0.2.1"},
		{InternalIP: "fd00::9", ExternalIP: "2001:db8::1"},
		{InternalIP: "10.77.0.9", ExternalIP: "192.0.2.2"},
	}
	if err != nil || !reflect.DeepEqual(nats, want) {
		t.Errorf("%v, %v; want %v", nats, err, want)
	}
	if _, err := wishes.NATs(addrs("10.77.0.9")); cnierr.CodeOf(err) != cnierr.InvalidAnnotation || !strings.Contains(err.Error(), "2001:db8::1") {
		t.Errorf("no IPv6 address: code %d, %v", cnierr.CodeOf(err), err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(IPAddrs, `["10.0.0.1"]`)
	f.Add(HWAddr, "02:00:00:00:00:01")
	f.Add(IPFamilies, `["IPv4"]`)
	f.Fuzz(func(t *testing.T, name, text string) {
		wishes, err := read(annotations{name: text}, annotations{name: text}, everything())
		if err != nil && cnierr.CodeOf(err) != cnierr.InvalidAnnotation {
			t.Errorf("code %d: %v", cnierr.CodeOf(err), err)
		}
		if len(wishes.Addresses) > 2 || len(wishes.AddressesWithoutIPAM) > 2 {
			t.Errorf("%+v", wishes)
		}
	})
}
