package windows

import (
	"fmt"
	"net/netip"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
)

func TestRefusedAddresses(t *testing.T) {
	t.Parallel()
	refuse := func(name string, change func(*dataplane.Request), words ...string) {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, mode func(*Options)) {
				n := newNode(t, mode)
				r := n.request("c1", "10.48.5.68/26")
				change(&r)
				n.engine.ClearLog()
				_, err := n.tryAdd(r)
				wantCode(t, err, cnierr.NotOnWindows, words...)
				n.wantUntouched()
			})
		})
	}
	prefixes := func(texts ...string) func(*dataplane.Request) {
		return func(r *dataplane.Request) {
			r.Prefixes = nil
			for _, text := range texts {
				r.Prefixes = append(r.Prefixes, netip.MustParsePrefix(text))
			}
		}
	}
	for address, use := range map[string]string{
		"10.48.5.64/26": "network address", "10.48.5.65/26": "gateway", "10.48.5.66/26": "host's endpoint", "10.48.5.127/26": "broadcast",
	} {
		refuse("Windows/50 reserved address "+address, prefixes(address), use, "10.48.5.64/26")
	}
	refuse("Windows/50 /32 of no network", prefixes("10.48.5.68/32"), "/32")
	refuse("Windows/51 IPv6 alone", prefixes("fd00::7/122"), "IPv4")
	refuse("Windows/51 dual stack", prefixes("10.48.5.68/26", "fd00::7/122"), "IPv4")
	refuse("Windows/51 no address", prefixes(), "no address")
	refuse("Windows/56 pool with IPIP", func(r *dataplane.Request) { r.Pools[0].IPIPMode = "Always" }, "pods", "ipipMode Always")
	refuse("Windows/56 pool with IPIP across subnets", func(r *dataplane.Request) { r.Pools[0].IPIPMode = "CrossSubnet" }, "pods", "ipipMode")
	refuse("Windows/56 pool with VXLAN across subnets", func(r *dataplane.Request) { r.Pools[0].VXLANMode = "CrossSubnet" }, "pods", "vxlanMode")
	t.Run("Windows/50 /32 within a network of ours", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		link := n.add("c2", "10.48.5.69/32")
		if link.Prefixes[0].Bits() != 26 {
			t.Errorf("the address is reported as %s", link.Prefixes[0])
		}
		n.wantNames(n.networkNames(), "Calico")
	})
	t.Run("Windows/56 another pool with IPIP is no matter", func(t *testing.T) {
		n := newNode(t)
		r := n.request("c1", "10.48.5.68/26")
		r.Pools = append(r.Pools, dataplane.Pool{Name: "linux", CIDR: netip.MustParsePrefix("10.49.0.0/16"), IPIPMode: "Always", VXLANMode: "Never"})
		if _, err := n.tryAdd(r); err != nil {
			t.Error(err)
		}
	})
	t.Run("a pool of the other mode is warned of", func(t *testing.T) {
		n := newNode(t)
		r := n.request("c1", "10.48.5.68/26")
		r.Pools[0].VXLANMode = "Never"
		if _, err := n.tryAdd(r); err != nil {
			t.Error(err)
		}
		n.wantLog("pool pods has vxlanMode Never")
		n = newNode(t, l2bridge)
		n.add("c1", "10.48.5.68/26")
		n.wantLog("pool pods has vxlanMode Always")
	})
	for _, namespace := range []string{"none", "container:0123", "", "12345678-1234-1234-1234-12345678901"} {
		t.Run(fmt.Sprintf("Windows/53 CNI_NETNS %q", namespace), func(t *testing.T) {
			n := newNode(t)
			r := n.request("c1", "10.48.5.68/26")
			r.Namespace = namespace
			n.engine.ClearLog()
			_, err := n.tryAdd(r)
			wantCode(t, err, cnierr.InvalidEnvironment, "CNI_NETNS", "GUID")
			wantCode(t, n.plane.Validate(namespace), cnierr.InvalidEnvironment, "CNI_NETNS")
			n.wantUntouched()
		})
	}
}
