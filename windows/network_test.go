package windows

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

func TestNetworkDocuments(t *testing.T) {
	t.Parallel()
	t.Run("Windows/1 network of an empty host in mode vxlan", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		wantJSON(t, n.sent("CreateNetwork")[0], `{"Name":"Calico","Type":"Overlay","Ipams":[{"Type":"Static","Subnets":[{
			"IpAddressPrefix":"10.48.5.64/26","Policies":[{"Type":"VSID","Settings":{"IsolationId":4096}}],
			"Routes":[{"NextHop":"10.48.5.65","DestinationPrefix":"0.0.0.0/0"}]}]}],"SchemaVersion":{"Major":2,"Minor":0}}`)
	})
	t.Run("Windows/6 network of mode l2bridge, forwarding", func(t *testing.T) {
		n := newNode(t, l2bridge)
		n.add("c1", "10.48.5.68/26")
		wantJSON(t, n.sent("CreateNetwork")[0], `{"Name":"Calico","Type":"L2Bridge","Ipams":[{"Type":"Static","Subnets":[{
			"IpAddressPrefix":"10.48.5.64/26",
			"Routes":[{"NextHop":"10.48.5.65","DestinationPrefix":"0.0.0.0/0"}]}]}],"SchemaVersion":{"Major":2,"Minor":0}}`)
		if sent := n.sent("ModifyNetwork"); len(sent) > 0 {
			t.Errorf("the network was changed: %v", sent)
		}
		if on := n.engine.ForwardingOn(); len(on) != 2 || on[0] != 10 || on[1] < 20 {
			t.Errorf("interfaces %v forward, want the management interface and the host endpoint's", on)
		}
		n.engine.ClearLog()
		n.add("c2", "10.48.5.69/26")
		if sent := n.sent("EnableForwarding"); len(sent) > 0 {
			t.Error("forwarding was written although it was on")
		}
	})
	t.Run("Windows/15 names of networks", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		n.wantNames(n.networkNames(), "Calico")
		n = newNode(t, manyNetworks)
		n.add("c1", "10.48.5.68/26")
		n.wantNames(n.networkNames(), "Calico-10-48-5-64")
	})
}

func TestVNI(t *testing.T) {
	t.Parallel()
	for vni, used := range map[uint]uint{0: 4096, 4097: 4097, 1<<24 - 1: 1<<24 - 1} {
		t.Run(fmt.Sprintf("Windows/2 VNI %d", vni), func(t *testing.T) {
			n := newNode(t, func(o *Options) { o.VNI = vni })
			n.add("c1", "10.48.5.68/26")
			if want := fmt.Sprintf(`"IsolationId":%d}`, used); !strings.Contains(n.sent("CreateNetwork")[0], want) {
				t.Errorf("the network is %s, want %s", n.sent("CreateNetwork")[0], want)
			}
		})
	}
	for _, vni := range []uint{1, 4095, 1 << 24} {
		t.Run(fmt.Sprintf("Windows/2 VNI %d is refused", vni), func(t *testing.T) {
			n := newNode(t, func(o *Options) { o.VNI = vni })
			r := n.request("c1", "10.48.5.68/26")
			n.engine.ClearLog()
			_, err := n.tryAdd(r)
			wantCode(t, err, cnierr.NotOnWindows, "vxlan_vni", fmt.Sprint(vni))
			wantCode(t, n.plane.Possible(), cnierr.NotOnWindows, "vxlan_vni")
			if calls := n.engine.Calls(); len(calls) > 0 {
				t.Errorf("HNS was called: %v", calls)
			}
		})
	}
	t.Run("Windows/36 another VNI with the same prefix keeps the network", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		before := n.networks()[0].ID
		n.configure(func(o *Options) { o.VNI = 5000 })
		n.add("c2", "10.48.5.69/26")
		if !hns.SameID(n.networks()[0].ID, before) {
			t.Error("the network was replaced")
		}
		n.wantLog("VNI 4096", "5000", "draining")
	})
}

func TestHostRoute(t *testing.T) {
	t.Parallel()
	t.Run("Windows/3 HostRoute once after two ADDs", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		n.add("c2", "10.48.5.69/26")
		sent := n.sent("ModifyNetwork")
		if len(sent) != 1 {
			t.Fatalf("the network was changed %d times", len(sent))
		}
		wantJSON(t, sent[0], `{"ResourceType":"Policy","RequestType":"Add","Settings":{"Policies":[{"Type":"HostRoute","Settings":{}}]}}`)
	})
	t.Run("Windows/3 HostRoute refused does not fail ADD", func(t *testing.T) {
		n := newNode(t)
		n.engine.Change(func(p *hnssim.Profile) { p.RefuseHostRoute = true })
		n.add("c1", "10.48.5.68/26")
		n.wantLog("HostRoute")
	})
}

func TestManagementAddress(t *testing.T) {
	t.Parallel()
	late := func(by time.Duration) func(*hnssim.Profile) {
		return func(p *hnssim.Profile) { p.ManagementDelay = by }
	}
	t.Run("Windows/4 management address after 3 s", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.engine.Change(late(3 * time.Second))
			n.add("c1", "10.48.5.68/26")
		})
	})
	t.Run("Windows/4 management address after 7 s", func(t *testing.T) {
		n := newNode(t)
		n.engine.Change(late(7 * time.Second))
		_, err := n.tryAdd(n.request("c1", "10.48.5.68/26"))
		wantCode(t, err, cnierr.HNSRefused, "management address", "Calico")
		n.wantNames(n.endpointNames())
		// The next ADD finds it.
		n.engine.Advance(7 * time.Second)
		n.add("c1", "10.48.5.68/26")

		n = newNode(t, l2bridge)
		n.engine.Change(late(7 * time.Second))
		n.add("c1", "10.48.5.68/26")
		n = newNode(t, l2bridge)
		n.engine.Change(late(29 * time.Second))
		n.add("c1", "10.48.5.68/26")
	})
	t.Run("Windows/4 never a management address", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode, func(o *Options) { o.Assumptions.ProviderAddressAlways = true })
			n.engine.Change(late(hnssim.Never))
			_, err := n.tryAdd(n.request("c1", "10.48.5.68/26"))
			wantCode(t, err, cnierr.HNSRefused, "management address")
		})
	})
	t.Run("Windows/5 interface late by 4 s", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.engine.Change(func(p *hnssim.Profile) { p.InterfaceDelay = 4 * time.Second })
			n.add("c1", "10.48.5.68/26")
		})
	})
	t.Run("Windows/5 interface never", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.engine.Change(func(p *hnssim.Profile) { p.InterfaceDelay = hnssim.Never })
			_, err := n.tryAdd(n.request("c1", "10.48.5.68/26"))
			wantCode(t, err, cnierr.HNSRefused, "no interface of the host has 172.20.41.103")
		})
	})
	t.Run("reads that fail while HNS makes the network are made again", func(t *testing.T) {
		n := newNode(t)
		n.engine.Change(late(3 * time.Second))
		n.engine.Inject(hnssim.Fault{Call: "EnumerateNetworks", Skip: 1, Times: 3, Code: 0x80070015})
		n.add("c1", "10.48.5.68/26")
	})
	t.Run("an L2Bridge network that shows no address is reached by the default route's", func(t *testing.T) {
		n := newNode(t, l2bridge)
		n.engine.Change(func(p *hnssim.Profile) { p.NoProviderAddress = true })
		n.add("c1", "10.48.5.68/26")
		wantJSON(t, policiesOf(n.endpoint("c1_Calico"), "SDNRoute")[0], `{"DestinationPrefix":"172.20.41.103/32","NeedEncap":true}`)
	})
	t.Run("Windows/54 two cards in one subnet", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.engine.AddInterface(hns.Interface{Index: 3, Name: "Ethernet 2", MAC: net.HardwareAddr{0, 1, 2, 3, 4, 5},
				Addresses: []netip.Prefix{netip.MustParsePrefix("172.20.41.200/19")}})
			n.engine.Change(func(p *hnssim.Profile) { p.InterfaceDelay = 2 * time.Second })
			n.add("c1", "10.48.5.68/26")
			if slices.Contains(n.engine.ForwardingOn(), 3) {
				t.Error("the other card was told to forward")
			}
			if host := n.endpoint("Calico_ep"); n.plane.Overlay && host.MACAddress != "00-15-5D-10-20-30" {
				t.Errorf("the host endpoint has the MAC %s of the wrong card", host.MACAddress)
			}
		})
	})
	t.Run("a reused network whose address no interface has", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		n.engine.Misplace(netip.MustParseAddr("172.20.41.99"))
		link := n.add("c2", "10.48.5.69/26")
		wantJSON(t, policiesOf(n.endpoint("c2_Calico"), "OutBoundNAT")[0], `{"Exceptions":["10.48.0.0/16","172.20.32.0/19"]}`)
		if len(link.Tunnels) > 0 {
			t.Errorf("tunnels %v could be published", link.Tunnels)
		}
		n.engine.Misplace(netip.MustParseAddr("192.0.2.99"))
		_, err := n.tryAdd(n.request("c3", "10.48.5.70/26"))
		wantCode(t, err, cnierr.HNSRefused, "no interface of the host has 192.0.2.99")
	})
	t.Run("direct server return on an HNS that cannot do it", func(t *testing.T) {
		for version, warned := range map[hns.Version]bool{{Major: 9, Minor: 2}: true, {Major: 9, Minor: 3}: false, {Major: 10, Minor: 1}: true, {Major: 10, Minor: 2}: false} {
			n := newNode(t, func(o *Options) { o.LoopbackDSR = true })
			n.engine.Change(func(p *hnssim.Profile) { p.Version = version })
			n.add("c1", "10.48.5.68/26")
			if got := strings.Contains(n.log.String(), "direct server return"); got != warned {
				t.Errorf("version %v: warned is %t", version, got)
			}
		}
	})
	t.Run("HNS of a version before schema 2", func(t *testing.T) {
		n := newNode(t)
		n.engine.Change(func(p *hnssim.Profile) { p.Version = hns.Version{Major: 8, Minor: 4} })
		r := n.request("c1", "10.48.5.68/26")
		n.engine.ClearLog()
		_, err := n.tryAdd(r)
		wantCode(t, err, cnierr.NotOnWindows, "8.4", "9.2")
		n.wantUntouched()
	})
}

func TestMetadataRoutes(t *testing.T) {
	t.Parallel()
	metadata := func(n *node) []hns.HostRoute {
		routes, err := n.engine.Host().Routes()
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(routes, func(r hns.HostRoute) bool { return r.Destination.Bits() == 0 })
	}
	t.Run("Windows/49 lost routes are restored", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			before := metadata(n)
			n.add("c1", "10.48.5.68/26")
			after := metadata(n)
			if len(before) != 2 || len(after) != 2 {
				t.Fatalf("routes %v became %v", before, after)
			}
			for i := range before {
				before[i].Interface = 10
				if before[i] != after[i] {
					t.Errorf("route %v became %v", before[i], after[i])
				}
			}
		})
	})
	t.Run("Windows/49 restored by an ADD that fails after it made the network", func(t *testing.T) {
		for name, broken := range map[string]func(*hnssim.Engine){
			"management address late": func(e *hnssim.Engine) {
				e.Change(func(p *hnssim.Profile) { p.ManagementDelay = 7 * time.Second })
			},
			"network made, answer lost": func(e *hnssim.Engine) {
				e.Inject(hnssim.Fault{Call: "CreateNetwork", Times: 1, Code: 0x800706BA, After: true})
			},
			"no endpoint for the host": func(e *hnssim.Engine) {
				e.Inject(hnssim.Fault{Call: "CreateEndpoint", Times: 1, Code: 0x80070015})
			},
		} {
			n := newNode(t)
			before := metadata(n)
			broken(n.engine)
			r := n.request("c1", "10.48.5.68/26")
			if _, err := n.tryAdd(r); err == nil {
				t.Errorf("%s: ADD succeeds", name)
			}
			restored := metadata(n)
			n.engine.Advance(10 * time.Second)
			if _, err := n.tryAdd(r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if after := metadata(n); len(before) != 2 || len(restored) != 2 || !slices.Equal(restored, after) {
				t.Errorf("%s: routes %v became %v, then %v", name, before, restored, after)
			}
		}
	})
	t.Run("Windows/49 no interface has the gateway's subnet yet: named", func(t *testing.T) {
		n := newNode(t)
		n.engine.Change(func(p *hnssim.Profile) { p.ManagementDelay, p.InterfaceDelay = hnssim.Never, hnssim.Never })
		if _, err := n.tryAdd(n.request("c1", "10.48.5.68/26")); err == nil {
			t.Error("ADD succeeds")
		}
		n.wantLog("169.254.169.254/32", "169.254.169.253/32", "add it by hand")
	})
	t.Run("Windows/49 absent before: not added", func(t *testing.T) {
		n := newNode(t)
		n.engine.SetRoutes(nil)
		n.add("c1", "10.48.5.68/26")
		if after := metadata(n); len(after) > 0 {
			t.Errorf("routes %v appeared", after)
		}
	})
	t.Run("Windows/49 still present: not touched", func(t *testing.T) {
		n := newNode(t)
		n.engine.Change(func(p *hnssim.Profile) { p.KeepMetadataRoutes = true })
		n.add("c1", "10.48.5.68/26")
		if sent := n.sent("AddRoute"); len(sent) > 0 {
			t.Error("a route that was there was added")
		}
	})
	t.Run("Windows/49 a route that cannot be added is named", func(t *testing.T) {
		n := newNode(t)
		n.engine.Inject(hnssim.Fault{Call: "AddRoute", Code: 5})
		n.add("c1", "10.48.5.68/26")
		n.wantLog("169.254.169.254/32", "169.254.169.253/32")
	})
}

func TestBuilds(t *testing.T) {
	t.Parallel()
	for build, vxlan := range map[int]bool{17134: false, 17763: true, 17764: false, 18316: false, 18317: true, 20348: true, 26100: true} {
		t.Run(fmt.Sprintf("Windows/57 build %d", build), func(t *testing.T) {
			n := newNode(t)
			n.engine.Change(func(p *hnssim.Profile) { p.Build = build })
			r := n.request("c1", "10.48.5.68/26")
			n.engine.ClearLog()
			_, err := n.tryAdd(r)
			if vxlan && err != nil {
				t.Error(err)
			}
			if !vxlan {
				wantCode(t, err, cnierr.NotOnWindows, fmt.Sprint(build), "17763", "18317")
				n.wantUntouched()
			}
			n = newNode(t, l2bridge)
			n.engine.Change(func(p *hnssim.Profile) { p.Build = build })
			n.add("c1", "10.48.5.68/26")
		})
	}
}

func TestSeveralNetworks(t *testing.T) {
	t.Parallel()
	t.Run("Windows/38 five pods on two blocks", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode, manyNetworks)
			n.engine.Assume(hnssim.DistinctVSIDs, false)
			addresses := []string{"10.48.5.67/29", "10.48.5.68/29", "10.48.5.69/29", "10.48.5.70/29", "10.48.5.75/29"}
			for i, address := range addresses {
				n.add(fmt.Sprintf("c%d", i), address)
			}
			n.wantNames(n.networkNames(), "Calico-10-48-5-64", "Calico-10-48-5-72")
			for i := range 3 {
				n.del(fmt.Sprintf("c%d", i))
			}
			for i := range 3 {
				n.add(fmt.Sprintf("d%d", i), addresses[i])
			}
			if made := n.sent("CreateNetwork"); len(made) != 2 {
				t.Errorf("%d networks were made", len(made))
			}
			n.wantNames(n.endpointNames(), "Calico-10-48-5-64_ep", "Calico-10-48-5-72_ep",
				"c3_Calico", "c4_Calico", "d0_Calico", "d1_Calico", "d2_Calico")
		})
	})
	t.Run("a second VXLAN network of the same VNI that HNS refuses", func(t *testing.T) {
		n := newNode(t, manyNetworks)
		n.add("c1", "10.48.5.68/29")
		_, err := n.tryAdd(n.request("c2", "10.48.5.76/29"))
		wantCode(t, err, cnierr.HNSRefused, "Calico-10-48-5-72", "0x803B0010")
	})
	t.Run("Windows/52 ids in another case are the same", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			for i := range 6 {
				n.add(fmt.Sprintf("c%d", i), fmt.Sprintf("10.48.5.%d/26", 70+i))
			}
			if made := n.sent("CreateEndpoint"); len(made) != 7 {
				t.Errorf("%d endpoints were made, want 6 pods' and the host's", len(made))
			}
		})
	})
	t.Run("Windows/48 the node agent's remote subnets survive", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		remote := policy("RemoteSubnetRoute", map[string]any{"DestinationPrefix": "10.48.6.0/26", "IsolationId": 4096,
			"ProviderAddress": "172.20.41.104", "DistributedRouterMacAddress": "00-15-5D-AA-BB-CC"})
		n.engine.Elsewhere(func() {
			if err := n.engine.Service().AddNetworkPolicy(deadline(t), n.networks()[0].ID, remote); err != nil {
				t.Fatal(err)
			}
		})
		n.add("c2", "10.48.5.69/26")
		n.del("c1")
		if !slices.ContainsFunc(n.networks()[0].Policies, func(p hns.Policy) bool { return p.Type == remote.Type }) {
			t.Error("the policy is gone")
		}
	})
}
