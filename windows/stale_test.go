package windows

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

// change is a change of the configuration that makes a network stale.
type change struct {
	name          string
	before, after []func(*Options)
	// first and second are the addresses of the pods before and after it.
	first, second string
	// gone is the network that cannot stay, made the one that follows.
	gone, made string
	reason     string
}

func changes() []change {
	single, many := func(*Options) {}, manyNetworks
	return []change{
		{"Windows/33 another prefix", nil, nil, "10.48.5.68/26", "10.48.7.4/26", "Calico", "Calico", "10.48.7.0/26"},
		{"Windows/33 another prefix, l2bridge", []func(*Options){l2bridge}, []func(*Options){l2bridge},
			"10.48.5.68/26", "10.48.7.4/26", "Calico", "Calico", "10.48.7.0/26"},
		{"Windows/34 from vxlan to l2bridge", nil, []func(*Options){l2bridge}, "10.48.5.68/26", "10.48.5.69/26", "Calico", "Calico", "type Overlay instead of L2Bridge"},
		{"Windows/34 from l2bridge to vxlan", []func(*Options){l2bridge}, nil, "10.48.5.68/26", "10.48.5.69/26", "Calico", "Calico", "type L2Bridge instead of Overlay"},
		{"Windows/37 flag from true to false", []func(*Options){single}, []func(*Options){many},
			"10.48.5.68/26", "10.48.5.69/26", "Calico", "Calico-10-48-5-64", "windows_use_single_network"},
		{"Windows/37 flag from false to true", []func(*Options){many}, []func(*Options){single},
			"10.48.5.68/26", "10.48.5.69/26", "Calico-10-48-5-64", "Calico", "windows_use_single_network"},
		{"Windows/37 flag from true to false, l2bridge", []func(*Options){l2bridge}, []func(*Options){l2bridge, many},
			"10.48.5.68/26", "10.48.5.69/26", "Calico", "Calico-10-48-5-64", "windows_use_single_network"},
		{"Windows/37 flag from true to false, another block", []func(*Options){l2bridge}, []func(*Options){l2bridge, many},
			"10.48.5.68/26", "10.48.7.4/26", "Calico", "Calico-10-48-7-0", "windows_use_single_network"},
	}
}

func TestStaleNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range changes() {
		t.Run(c.name+", a pod present", func(t *testing.T) {
			n := newNode(t, c.before...)
			n.add("c1", c.first)
			networks, endpoints := n.networkNames(), n.endpointNames()
			n.configure(c.after...)
			r := n.request("c2", c.second)
			n.engine.ClearLog()
			_, err := n.tryAdd(r)
			wantCode(t, err, cnierr.DrainNeeded, "network "+c.gone, c.reason, "c1_Calico", "drain")
			n.wantUntouched()
			n.wantNames(n.networkNames(), networks...)
			n.wantNames(n.endpointNames(), endpoints...)
		})
		t.Run(c.name+", none present, one leaked", func(t *testing.T) {
			n := newNode(t, c.before...)
			r := n.request("c1", c.first)
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			n.removeNamespace(r.Namespace)
			n.configure(c.after...)
			n.add("c2", c.second)
			n.wantNames(n.networkNames(), c.made)
			n.wantNames(n.endpointNames(), c.made+"_ep", "c2_Calico")
			n.wantLog("c1_Calico", netip.MustParsePrefix(c.first).Addr().String(), c.reason)
			deleted := 0
			for _, call := range n.engine.Calls() {
				if call.Name == "DeleteEndpoint" {
					deleted++
				}
			}
			if deleted != 2 {
				t.Errorf("%d endpoints were deleted one by one, want the leaked one and the host's", deleted)
			}
		})
		t.Run("Windows/35 "+c.name+", the network cannot be deleted", func(t *testing.T) {
			n := newNode(t, c.before...)
			n.add("c1", c.first)
			n.del("c1")
			n.configure(c.after...)
			r := n.request("c2", c.second)
			n.engine.ClearLog()
			n.engine.Inject(hnssim.Fault{Call: "DeleteNetwork", Code: 0x80070020})
			_, err := n.tryAdd(r)
			wantCode(t, err, cnierr.HNSRefused, "removing network "+c.gone, "0x80070020")
			if made := append(n.sent("CreateNetwork"), n.sent("CreateEndpoint")...); len(made) > 0 {
				t.Errorf("made all the same: %v", made)
			}
		})
	}
	t.Run("Windows/37 from false to true with several blocks in use", func(t *testing.T) {
		n := newNode(t, l2bridge, manyNetworks)
		n.add("c1", "10.48.5.68/26")
		n.add("c2", "10.48.7.4/26")
		n.add("c3", "10.48.9.4/26")
		n.del("c1")
		n.configure(l2bridge)
		_, err := n.tryAdd(n.request("c4", "10.48.5.69/26"))
		wantCode(t, err, cnierr.DrainNeeded, "Calico-10-48-7-0", "Calico-10-48-9-0", "c2_Calico", "c3_Calico")
		n.del("c2")
		n.del("c3")
		n.add("c4", "10.48.5.69/26")
		n.wantNames(n.networkNames(), "Calico")
	})
	t.Run("remote endpoints are no pods", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		n.del("c1")
		n.make(hns.Endpoint{Name: "svc", HostComputeNetwork: n.networks()[0].ID, Flags: hns.FlagRemote, MACAddress: "02-00-00-00-00-01",
			IPConfigurations: []hns.IPConfiguration{{IPAddress: "10.48.5.100"}}, Policies: []hns.Policy{providerAddress(netip.MustParseAddr("172.20.41.104"))}})
		n.add("c2", "10.48.7.4/26")
		n.wantNames(n.endpointNames(), "Calico_ep", "c2_Calico")
	})
	t.Run("a network with the prefix but no default route is replaced", func(t *testing.T) {
		plan := Options{Name: "Calico", SingleNetwork: true}.planNetwork([]hns.Network{{Name: "Calico", Type: hns.L2Bridge, Ipams: []hns.Ipam{{
			Subnets: []hns.Subnet{{IPAddressPrefix: "10.48.5.64/26", Routes: []hns.Route{{NextHop: "10.48.5.70", DestinationPrefix: "0.0.0.0/0"}}}}}}}},
			subnet{netip.MustParsePrefix("10.48.5.64/26")}, 0)
		if plan.reuse != nil || len(plan.stale) != 1 {
			t.Errorf("the plan is %+v", plan)
		}
	})
	t.Run("the network is wiped by a boot", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.add("c1", "10.48.5.68/26")
			n.engine.Wipe()
			n.add("c1", "10.48.5.69/26")
			n.wantNames(n.endpointNames(), "Calico_ep", "c1_Calico")
		})
	})
}

func TestNamesOfNetworks(t *testing.T) {
	t.Parallel()
	o := Options{Name: "Calico"}
	for name, ours := range map[string]bool{
		"Calico": true, "Calico-10-48-5-64": true, "Calico2": false, "x_Calico": false, "Calico-10-48-5": false,
		"Calico-10-48-5-64-1": false, "Calico-a-b-c-d": false, "Calico-10-48-5-": false, "Calico-1000-1-1-1": false, "calico": false,
	} {
		if o.isOurs(name) != ours {
			t.Errorf("network %s counts as ours: %t", name, !ours)
		}
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	t.Run("Windows/46 twice, without namespace, of one never added", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.add("c1", "10.48.5.68/26")
			n.engine.ClearLog()
			n.del("c1")
			var calls []string
			for _, call := range n.engine.Changes() {
				calls = append(calls, call.Name)
			}
			if !slices.Equal(calls, []string{"ModifyNamespace", "DeleteEndpoint"}) {
				t.Errorf("DEL did %v, want detach and delete", calls)
			}
			n.del("c1")
			n.del("never")
			r := n.request("c2", "10.48.5.69/26")
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			n.removeNamespace(r.Namespace)
			n.del("c2")
			n.wantNames(n.endpointNames(), "Calico_ep")
		})
	})
	t.Run("Windows/46 a failure is reported", func(t *testing.T) {
		for _, call := range []string{"EnumerateEndpoints", "ModifyNamespace", "DeleteEndpoint"} {
			n := newNode(t)
			n.add("c1", "10.48.5.68/26")
			n.engine.Inject(hnssim.Fault{Call: call, Times: 1, Code: 0x80070015})
			wantCode(t, n.plane.Delete(deadline(t), removal("c1")), cnierr.HNSRefused, "c1_Calico", "0x80070015")
			n.del("c1")
			n.wantNames(n.endpointNames(), "Calico_ep")
		}
	})
	t.Run("Windows/47 the last pod leaves network and host endpoint", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.add("c1", "10.48.5.68/26")
			n.del("c1")
			n.wantNames(n.networkNames(), "Calico")
			n.wantNames(n.endpointNames(), "Calico_ep")
		})
	})
	t.Run("Windows/61 late DEL of an old sandbox with the same address", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			r := n.request("old", "10.48.5.68/26")
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			n.removeNamespace(r.Namespace)
			n.add("new", "10.48.5.68/26")
			n.del("old")
			n.wantNames(n.endpointNames(), "Calico_ep", "new_Calico")
		})
	})
	t.Run("a container whose endpoint has the same name on another network", func(t *testing.T) {
		n := newNode(t, func(o *Options) { o.Name = "b" })
		n.makeNetwork(hns.Network{Name: "a_b", Type: "Transparent", Ipams: []hns.Ipam{{Subnets: []hns.Subnet{{
			IPAddressPrefix: "10.99.0.0/24", Routes: []hns.Route{{NextHop: "10.99.0.1", DestinationPrefix: "0.0.0.0/0"}}}}}}})
		n.make(hns.Endpoint{Name: "x_a_b", HostComputeNetwork: n.networks()[0].ID, IPConfigurations: []hns.IPConfiguration{{IPAddress: "10.99.0.2"}}})
		n.del("x_a")
		owned, err := n.plane.Owned(deadline(t))
		if err != nil || len(owned) > 0 {
			t.Errorf("owned are %v, %v", owned, err)
		}
		n.wantNames(n.endpointNames(), "x_a_b")
	})
	t.Run("Windows/59 what GC finds and removes", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		n.add("c2", "10.48.5.69/26")
		calico := n.networks()[0].ID
		n.make(hns.Endpoint{Name: "remote_Calico", HostComputeNetwork: calico, Flags: hns.FlagRemote, MACAddress: "02-00-00-00-00-01",
			IPConfigurations: []hns.IPConfiguration{{IPAddress: "10.48.5.100"}}, Policies: []hns.Policy{providerAddress(netip.MustParseAddr("172.20.41.104"))}})
		n.make(hns.Endpoint{Name: "somebody's", HostComputeNetwork: calico, IPConfigurations: []hns.IPConfiguration{{IPAddress: "10.48.5.101"}}})
		for i, name := range []string{"Calico2", "x_Calico"} {
			other := n.makeNetwork(hns.Network{Name: name, Type: "Transparent", Ipams: []hns.Ipam{{Subnets: []hns.Subnet{{
				IPAddressPrefix: fmt.Sprintf("10.9%d.0.0/24", i),
				Routes:          []hns.Route{{NextHop: fmt.Sprintf("10.9%d.0.1", i), DestinationPrefix: "0.0.0.0/0"}}}}}}})
			n.make(hns.Endpoint{Name: "c3_" + name, HostComputeNetwork: other.ID})
		}
		owned, err := n.plane.Owned(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, f := range owned {
			found = append(found, f.HostInterface)
			if f.Owner.ContainerID() == "c1" {
				if err := n.plane.Remove(deadline(t), f); err != nil {
					t.Error(err)
				}
				if err := n.plane.Remove(deadline(t), f); err != nil {
					t.Errorf("twice: %v", err)
				}
			}
		}
		slices.Sort(found)
		n.wantNames(found, "c1_Calico", "c2_Calico")
		n.wantNames(n.endpointNames(), "Calico_ep", "c2_Calico", "c3_Calico2", "c3_x_Calico", "remote_Calico", "somebody's")
	})
	t.Run("a doubled endpoint of a container is warned of", func(t *testing.T) {
		n := newNode(t)
		n.allowFindings = true
		n.add("c1", "10.48.5.68/26")
		n.make(hns.Endpoint{Name: "c1_Calico", HostComputeNetwork: n.networks()[0].ID})
		if owned, err := n.plane.Owned(deadline(t)); err != nil || len(owned) != 2 {
			t.Errorf("owned are %v, %v", owned, err)
		}
		n.wantLog("two endpoints have one name")
	})
	t.Run("Undo and Confirm", func(t *testing.T) {
		n := newNode(t)
		link := n.add("c1", "10.48.5.68/26")
		if err := n.plane.Confirm(deadline(t), link); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := n.plane.Undo(deadline(t), link); err != nil {
				t.Error(err)
			}
		}
		wantCode(t, n.plane.Confirm(deadline(t), link), cnierr.Overtaken, link.ID)
		n.wantNames(n.endpointNames(), "Calico_ep")
	})
	t.Run("HasInterface", func(t *testing.T) {
		n := newNode(t)
		r := n.request("c1", "10.48.5.68/26")
		has := func(want bool) {
			t.Helper()
			if got, err := n.plane.HasInterface(r.Namespace, "eth0"); err != nil || got != want {
				t.Errorf("the namespace holds an endpoint: %t, %v", got, err)
			}
		}
		has(false)
		if _, err := n.tryAdd(r); err != nil {
			t.Fatal(err)
		}
		has(true)
		n.removeNamespace(r.Namespace)
		has(false)
	})
}

func TestTunnels(t *testing.T) {
	t.Parallel()
	t.Run("Windows/43 index 1 and the router's MAC", func(t *testing.T) {
		n := newNode(t)
		link := n.add("c1", "10.48.5.68/26")
		again, err := n.plane.Tunnels(deadline(t), link)
		want := []dataplane.Tunnel{{Address: netip.MustParseAddr("10.48.5.65"), MAC: "00:15:5d:ab:cd:ef"}}
		if err != nil || !slices.Equal(again, want) || !slices.Equal(link.Tunnels, want) {
			t.Errorf("ADD says %v, asked again %v, %v", link.Tunnels, again, err)
		}
		n = newNode(t, l2bridge)
		if link := n.add("c1", "10.48.5.68/26"); len(link.Tunnels) > 0 {
			t.Errorf("L2Bridge has tunnels %v", link.Tunnels)
		}
	})
	t.Run("Windows/44 ProviderAddress is not the host's", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		n.engine.Misplace(netip.MustParseAddr("172.20.41.99"))
		_, err := n.plane.Tunnels(deadline(t), dataplane.Link{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.48.5.68/26")}})
		wantCode(t, err, cnierr.HNSRefused, "172.20.41.99")
	})
	t.Run("Windows/45 all networks of ours", func(t *testing.T) {
		n := newNode(t, manyNetworks)
		n.engine.Assume(hnssim.DistinctVSIDs, false)
		n.add("c1", "10.48.5.68/26")
		link := n.add("c2", "10.48.7.4/26")
		if len(link.Tunnels) != 2 || link.Tunnels[0].Address.String() != "10.48.7.1" || link.Tunnels[1].Address.String() != "10.48.5.65" {
			t.Errorf("tunnels %v", link.Tunnels)
		}
	})
}
