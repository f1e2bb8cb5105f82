package hnssim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"calico-cni/windows/hns"
)

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// host is an engine whose calls are made under the lock.

func host(t *testing.T) (*Engine, *Service) {
	t.Helper()
	e := New()
	unlock, err := e.Host().Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	return e, e.Service()
}

func document(kind hns.NetworkType, name, prefix, gateway string, policies ...hns.Policy) hns.Network {
	return hns.Network{Name: name, Type: kind, SchemaVersion: hns.Schema2(), Ipams: []hns.Ipam{{Type: "Static", Subnets: []hns.Subnet{{
		IPAddressPrefix: prefix, Policies: policies, Routes: []hns.Route{{NextHop: gateway, DestinationPrefix: "0.0.0.0/0"}},
	}}}}}
}

func vsid(id int) hns.Policy {
	return hns.Policy{Type: "VSID", Settings: json.RawMessage(fmt.Sprintf(`{"IsolationId":%d}`, id))}
}

func overlay() hns.Network {
	return document(hns.Overlay, "Calico", "10.48.5.64/26", "10.48.5.65", vsid(4096))
}

func bridge() hns.Network { return document(hns.L2Bridge, "Calico", "10.48.5.64/26", "10.48.5.65") }

func wantCode(t *testing.T, err error, code hns.Code) {
	t.Helper()
	if code == 0 && err != nil || code != 0 && hns.CodeOf(err) != code {
		t.Errorf("error %v, want code 0x%08X", err, uint32(code))
	}
}

func madeNetwork(t *testing.T, s *Service, n hns.Network) hns.Network {
	t.Helper()
	made, err := s.CreateNetwork(deadline(t), n)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func endpointOn(n hns.Network, address string, policies ...hns.Policy) hns.Endpoint {
	return hns.Endpoint{Name: "e" + address, HostComputeNetwork: n.ID, SchemaVersion: hns.Schema2(), Policies: policies,
		IPConfigurations: []hns.IPConfiguration{{IPAddress: address}}}
}

func policyOf(kind, settings string) hns.Policy {
	return hns.Policy{Type: kind, Settings: json.RawMessage(settings)}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		network hns.Network
		code    hns.Code
		without Assumption
	}{
		"overlay":           {network: document(hns.Overlay, "b", "10.1.0.0/24", "10.1.0.1", vsid(9999))},
		"bridge":            {network: document(hns.L2Bridge, "b", "10.1.0.0/24", "10.1.0.1")},
		"unknown type":      {document("L3", "b", "10.1.0.0/24", "10.1.0.1"), hns.UnknownNetworkType, ""},
		"same name":         {document(hns.L2Bridge, "Calico", "10.1.0.0/24", "10.1.0.1"), hns.NetworkNameInUse, ""},
		"same name allowed": {document(hns.L2Bridge, "Calico", "10.1.0.0/24", "10.1.0.1"), 0, UniqueNetworkNames},
		"host bits":         {document(hns.L2Bridge, "b", "10.1.0.5/24", "10.1.0.1"), hns.AddressOutsideSubnets, ""},
		"no prefix":         {document(hns.L2Bridge, "b", "10.1.0.0", "10.1.0.1"), hns.AddressOutsideSubnets, ""},
		"gateway outside":   {document(hns.L2Bridge, "b", "10.1.0.0/24", "10.2.0.1"), hns.AddressOutsideSubnets, ""},
		"no gateway":        {document(hns.L2Bridge, "b", "10.1.0.0/24", ""), hns.AddressOutsideSubnets, ""},
		"no VSID":           {document(hns.Overlay, "b", "10.1.0.0/24", "10.1.0.1"), hns.InvalidPolicy, ""},
		"two VSIDs":         {document(hns.Overlay, "b", "10.1.0.0/24", "10.1.0.1", vsid(5000), vsid(5001)), hns.InvalidPolicy, ""},
		"VSID too small":    {document(hns.Overlay, "b", "10.1.0.0/24", "10.1.0.1", vsid(4095)), hns.InvalidPolicy, ""},
		"same VSID":         {document(hns.Overlay, "b", "10.1.0.0/24", "10.1.0.1", vsid(4096)), hns.NetworkNameInUse, ""},
		"same VSID allowed": {document(hns.Overlay, "b", "10.1.0.0/24", "10.1.0.1", vsid(4096)), 0, DistinctVSIDs},
		"overlap":           {document(hns.L2Bridge, "b", "10.48.5.0/24", "10.48.5.1"), hns.NetworkNameInUse, ""},
		"overlap allowed":   {document(hns.L2Bridge, "b", "10.48.5.0/24", "10.48.5.1"), 0, DisjointPrefixes},
		"schema 1":          {hns.Network{Name: "b", Type: hns.L2Bridge}, hns.InvalidJSON, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, s := host(t)
			madeNetwork(t, s, overlay())
			if c.without != "" {
				e.Assume(c.without, false)
			}
			_, err := s.CreateNetwork(deadline(t), c.network)
			wantCode(t, err, c.code)
		})
	}
	t.Run("policies of networks", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		n := madeNetwork(t, s, overlay())
		wantCode(t, s.AddNetworkPolicy(deadline(t), n.ID, policyOf("HostRoute", "{}")), 0)
		wantCode(t, s.AddNetworkPolicy(deadline(t), n.ID, policyOf("hostroute", "{}")), hns.PolicyAlreadyPresent)
		wantCode(t, s.AddNetworkPolicy(deadline(t), n.ID, policyOf("Nonsense", "{}")), hns.UnknownPolicyType)
		wantCode(t, s.AddNetworkPolicy(deadline(t), newID(), policyOf("HostRoute", "{}")), hns.NetworkNotFound)
		wantCode(t, s.modify(deadline(t), Network, n.ID, "Subnet", "Add", map[string]any{}), hns.RequestUnsupported)
		wantCode(t, s.modify(deadline(t), Network, n.ID, "Policy", "Refresh", map[string]any{}), hns.RequestUnsupported)
		e.Change(func(p *Profile) { p.RefuseHostRoute = true })
		wantCode(t, s.AddNetworkPolicy(deadline(t), n.ID, policyOf("HostRoute", "{}")), hns.RequestUnsupported)
	})
	t.Run("what HNS adds comes later", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		e.Change(func(p *Profile) { p.ManagementDelay, p.InterfaceDelay = time.Second, 2*time.Second })
		made := madeNetwork(t, s, overlay())
		if len(made.Policies) > 0 {
			t.Errorf("the new network has %v already", made.Policies)
		}
		e.Advance(time.Second)
		later, err := s.Networks(deadline(t))
		if err != nil || len(later[0].Policies) != 2 {
			t.Errorf("later it is %v, %v", later, err)
		}
		if carrier(t, e) != 0 {
			t.Error("an interface has the address before its time")
		}
		e.Advance(time.Second)
		if got := carrier(t, e); got != switchIndex {
			t.Errorf("interface %d has the address", got)
		}
	})
	t.Run("the first network moves address and routes, the last gives them back", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		n := madeNetwork(t, s, bridge())
		routes, _ := e.Host().Routes()
		if len(routes) != 1 || routes[0].Interface != switchIndex {
			t.Errorf("routes %v", routes)
		}
		wantCode(t, s.DeleteNetwork(deadline(t), n.ID), 0)
		wantCode(t, s.DeleteNetwork(deadline(t), n.ID), hns.NetworkNotFound)
		if got := carrier(t, e); got != adapterIndex {
			t.Errorf("interface %d has the address", got)
		}
	})
}

// carrier is the interface that has the host's address.

func carrier(t *testing.T, e *Engine) int {
	t.Helper()
	interfaces, err := e.Host().Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		if slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == e.adapter.address() }) {
			return i.Index
		}
	}
	return 0
}

func TestLookUps(t *testing.T) {
	t.Parallel()
	e, s := host(t)
	ctx := deadline(t)
	n := madeNetwork(t, s, bridge())
	for _, address := range []string{"10.48.5.70", "10.48.5.7", "10.48.5.71"} {
		if address == "10.48.5.7" {
			continue
		}
		_, err := s.CreateEndpoint(ctx, endpointOn(n, address))
		wantCode(t, err, 0)
	}
	for name, want := range map[string]int{"e10.48.5.70": 1, "e10.48.5.7": 0, "E10.48.5.70": 0} {
		if got, err := s.EndpointsByName(ctx, name); err != nil || len(got) != want {
			t.Errorf("name %s finds %v, %v", name, got, err)
		}
	}
	spellings := map[string]bool{}
	for range 8 {
		found, err := s.Networks(ctx)
		if err != nil {
			t.Fatal(err)
		}
		spellings[found[0].ID] = true
	}
	if len(spellings) != 2 {
		t.Errorf("ids are spelled %v", spellings)
	}
	for _, bad := range []string{"{", `{"SchemaVersion":{"Major":1}}`, `{"SchemaVersion":{"Major":2},"Filter":"["}`} {
		_, err := e.Enumerate(ctx, Network, bad)
		wantCode(t, err, hns.InvalidJSON)
	}
	wantCode(t, e.Modify(ctx, Network, n.ID, "{"), hns.InvalidJSON)
}
