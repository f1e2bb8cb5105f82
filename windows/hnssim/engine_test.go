package hnssim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

func TestEndpoints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*hns.Endpoint)
		code   hns.Code
	}{
		"plain":              {func(*hns.Endpoint) {}, 0},
		"index 2":            {func(e *hns.Endpoint) { e.IPConfigurations[0].IPAddress = "10.48.5.66" }, 0},
		"no address":         {func(e *hns.Endpoint) { e.IPConfigurations = nil }, 0},
		"unknown network":    {func(e *hns.Endpoint) { e.HostComputeNetwork = newID() }, hns.NetworkNotFound},
		"namespace":          {func(e *hns.Endpoint) { e.HostComputeNamespace = newID() }, hns.RequestUnsupported},
		"outside":            {func(e *hns.Endpoint) { e.IPConfigurations[0].IPAddress = "10.48.6.1" }, hns.AddressOutsideSubnets},
		"no address at all":  {func(e *hns.Endpoint) { e.IPConfigurations[0].IPAddress = "x" }, hns.AddressOutsideSubnets},
		"network address":    {func(e *hns.Endpoint) { e.IPConfigurations[0].IPAddress = "10.48.5.64" }, hns.AddressReserved},
		"gateway":            {func(e *hns.Endpoint) { e.IPConfigurations[0].IPAddress = "10.48.5.65" }, hns.AddressReserved},
		"broadcast":          {func(e *hns.Endpoint) { e.IPConfigurations[0].IPAddress = "10.48.5.127" }, hns.AddressReserved},
		"address in use":     {func(e *hns.Endpoint) { e.IPConfigurations[0].IPAddress = "10.48.5.70" }, hns.ObjectExists},
		"MAC in use":         {func(e *hns.Endpoint) { e.MACAddress = "02-00-00-00-00-01" }, hns.ObjectExists},
		"remote on a bridge": {func(e *hns.Endpoint) { e.Flags, e.MACAddress = 1, "02-00-00-00-00-02" }, hns.RemoteEndpoint},
		"schema 1":           {func(e *hns.Endpoint) { e.SchemaVersion = hns.SchemaVersion{Major: 1} }, hns.InvalidJSON},
		"policy of schema 1": {func(e *hns.Endpoint) { e.Policies = []hns.Policy{policyOf("PA", "{}")} }, hns.UnknownPolicyType},
		"provider on bridge": {func(e *hns.Endpoint) {
			e.Policies = []hns.Policy{policyOf("ProviderAddress", `{"ProviderAddress":"1.2.3.4"}`)}
		}, hns.InvalidPolicy},
		"field of schema 1": {func(e *hns.Endpoint) { e.Policies = []hns.Policy{policyOf("OutBoundNAT", `{"ExceptionList":[]}`)} }, hns.InvalidPolicy},
		"exceptions of IPv6": {func(e *hns.Endpoint) {
			e.Policies = []hns.Policy{policyOf("OutBoundNAT", `{"Exceptions":["fd00::/64"]}`)}
		}, hns.InvalidPolicy},
		"exceptions of a text": {func(e *hns.Endpoint) {
			e.Policies = []hns.Policy{policyOf("OutBoundNAT", `{"Exceptions":"10.0.0.0/8"}`)}
		}, hns.InvalidPolicy},
		"route without CIDR": {func(e *hns.Endpoint) {
			e.Policies = []hns.Policy{policyOf("SDNRoute", `{"DestinationPrefix":"10.0.0.1"}`)}
		}, hns.InvalidPolicy},
		"ACL priority": {func(e *hns.Endpoint) {
			e.Policies = []hns.Policy{policyOf("ACL", `{"RuleType":"Switch","Priority":65501}`)}
		}, hns.InvalidPolicy},
		"ACL protocols": {func(e *hns.Endpoint) {
			e.Policies = []hns.Policy{policyOf("ACL", `{"RuleType":"Switch","Priority":1,"Protocols":6}`)}
		}, hns.InvalidPolicy},
		"ACL rule type": {func(e *hns.Endpoint) { e.Policies = []hns.Policy{policyOf("ACL", `{"RuleType":"Port","Priority":1}`)} }, hns.InvalidPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := host(t)
			n := madeNetwork(t, s, bridge())
			first := endpointOn(n, "10.48.5.70")
			first.MACAddress = "02-00-00-00-00-01"
			if _, err := s.CreateEndpoint(deadline(t), first); err != nil {
				t.Fatal(err)
			}
			e := endpointOn(n, "10.48.5.71")
			c.change(&e)
			made, err := s.CreateEndpoint(deadline(t), e)
			wantCode(t, err, c.code)
			if c.code == 0 && (made.MACAddress == "" || len(made.Routes) != 1 || made.Routes[0].NextHop != "10.48.5.65" || made.Attached()) {
				t.Errorf("it is %+v", made)
			}
		})
	}
	t.Run("lenient about fields", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		e.Assume(StrictPolicySettings, false)
		n := madeNetwork(t, s, bridge())
		_, err := s.CreateEndpoint(deadline(t), endpointOn(n, "10.48.5.70", policyOf("OutBoundNAT", `{"ExceptionList":[]}`)))
		wantCode(t, err, 0)
	})
	t.Run("remote", func(t *testing.T) {
		t.Parallel()
		_, s := host(t)
		remote := endpointOn(madeNetwork(t, s, overlay()), "10.48.5.70", policyOf("ProviderAddress", `{"ProviderAddress":"1.2.3.4"}`))
		remote.Flags = hns.FlagRemote
		_, err := s.CreateEndpoint(deadline(t), remote)
		wantCode(t, err, hns.RemoteEndpoint)
		remote.MACAddress = "02-00-00-00-00-01"
		made, err := s.CreateEndpoint(deadline(t), remote)
		wantCode(t, err, 0)
		namespaces, _ := s.Namespaces(deadline(t))
		wantCode(t, s.Attach(deadline(t), namespaces[0].ID, made.ID), hns.RemoteEndpoint)
	})
	t.Run("the same address on two networks", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		e.Assume(DisjointPrefixes, false)
		first := madeNetwork(t, s, bridge())
		second := madeNetwork(t, s, document(hns.L2Bridge, "b", "10.48.5.64/26", "10.48.5.65"))
		for _, n := range []hns.Network{first, second} {
			made := endpointOn(n, "10.48.5.70")
			made.Name += n.ID
			_, err := s.CreateEndpoint(deadline(t), made)
			wantCode(t, err, 0)
		}
		of, err := s.EndpointsOfNetwork(deadline(t), first.ID)
		if err != nil || len(of) != 1 {
			t.Errorf("on the first network are %v, %v", of, err)
		}
	})
	t.Run("policies are replaced by type, added, removed when equal", func(t *testing.T) {
		t.Parallel()
		old := []hns.Policy{policyOf("ACL", `{"Priority":1}`), policyOf("QOS", `{}`), policyOf("ACL", `{"Priority":2}`)}
		given := []hns.Policy{policyOf("acl", `{ "Priority": 2 }`)}
		for request, want := range map[string]int{"Update": 2, "Add": 4, "Remove": 2} {
			if got := changed(old, given, request); len(got) != want {
				t.Errorf("%s leaves %v", request, got)
			}
		}
	})
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	e, s := host(t)
	ctx := deadline(t)
	n := madeNetwork(t, s, bridge())
	made, err := s.CreateEndpoint(ctx, endpointOn(n, "10.48.5.70"))
	wantCode(t, err, 0)
	pod, err := s.CreateNamespace(ctx, hns.Namespace{Type: "Host", SchemaVersion: hns.Schema2()})
	wantCode(t, err, 0)
	_, err = s.CreateNamespace(ctx, hns.Namespace{})
	wantCode(t, err, hns.InvalidJSON)

	wantCode(t, s.Attach(ctx, newID(), made.ID), hns.ElementNotFound)
	wantCode(t, s.Attach(ctx, pod.ID, newID()), hns.EndpointNotFound)
	wantCode(t, s.Detach(ctx, pod.ID, made.ID), hns.ElementNotFound)
	wantCode(t, s.Attach(ctx, pod.ID, made.ID), 0)
	wantCode(t, s.Attach(ctx, pod.ID, made.ID), hns.AlreadyAttached)
	found, err := s.NamespaceByID(ctx, pod.ID)
	if err != nil || len(found.EndpointIDs()) != 1 {
		t.Errorf("the namespace holds %v, %v", found, err)
	}
	wantCode(t, e.Delete(ctx, Namespace, pod.ID), 0)
	_, err = s.NamespaceByID(ctx, pod.ID)
	wantCode(t, err, hns.ElementNotFound)
	if left, err := s.EndpointByID(ctx, made.ID); err != nil || !hns.SameID(left.HostComputeNamespace, pod.ID) {
		t.Errorf("the endpoint that is left is %+v, %v", left, err)
	}
	wantCode(t, s.DeleteEndpoint(ctx, made.ID), 0)
	wantCode(t, s.DeleteEndpoint(ctx, made.ID), hns.EndpointNotFound)
	_, err = s.EndpointByID(ctx, made.ID)
	wantCode(t, err, hns.EndpointNotFound)
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

func TestFaultsAndFindings(t *testing.T) {
	t.Parallel()
	t.Run("faults count calls", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		ran := 0
		e.Inject(Fault{Call: "CreateNetwork", Skip: 1, Times: 1, Code: 0x80070015, Delay: time.Second, During: func() { ran++ }})
		madeNetwork(t, s, bridge())
		_, err := s.CreateNetwork(deadline(t), overlay())
		wantCode(t, err, 0x80070015)
		_, err = s.CreateNetwork(deadline(t), overlay())
		wantCode(t, err, hns.NetworkNameInUse)
		if ran != 1 || e.now() != time.Second {
			t.Errorf("ran %d times, %v passed", ran, e.now())
		}
	})
	t.Run("a failure after the work", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		e.Inject(Fault{Call: "CreateNetwork", Code: 0x80070015, After: true})
		_, err := s.CreateNetwork(deadline(t), bridge())
		wantCode(t, err, 0x80070015)
		if found, err := s.Networks(deadline(t)); err != nil || len(found) != 1 {
			t.Errorf("there are %v, %v", found, err)
		}
	})
	t.Run("a call whose process is dead does nothing", func(t *testing.T) {
		t.Parallel()
		_, s := host(t)
		ctx, cancel := context.WithCancel(deadline(t))
		cancel()
		if _, err := s.CreateNetwork(ctx, bridge()); err == nil {
			t.Error("no error")
		}
		if found, err := s.Networks(deadline(t)); err != nil || len(found) != 0 {
			t.Errorf("there are %v, %v", found, err)
		}
	})
	t.Run("changes outside the lock, and second names, are findings", func(t *testing.T) {
		t.Parallel()
		e := New()
		s := e.Service()
		e.Elsewhere(func() { madeNetwork(t, s, bridge()) })
		if found := e.Findings(); len(found) > 0 {
			t.Fatalf("findings %v", found)
		}
		networks, err := s.Networks(deadline(t))
		wantCode(t, err, 0)
		for i := range 2 {
			made := endpointOn(networks[0], fmt.Sprintf("10.48.5.%d", 70+i))
			made.Name = "one"
			_, err := s.CreateEndpoint(deadline(t), made)
			wantCode(t, err, 0)
		}
		if found := strings.Join(e.Findings(), "\n"); strings.Count(found, "outside the network lock") != 2 || !strings.Contains(found, "second endpoint has the name one") {
			t.Errorf("findings %s", found)
		}
	})
	t.Run("a boot and a restart", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		n := madeNetwork(t, s, bridge())
		_, err := s.CreateEndpoint(deadline(t), endpointOn(n, "10.48.5.70"))
		wantCode(t, err, 0)
		e.Restart()
		if found, err := s.Endpoints(deadline(t)); err != nil || len(found) != 0 {
			t.Errorf("after a restart there are %v, %v", found, err)
		}
		e.Wipe()
		if found, err := s.Networks(deadline(t)); err != nil || len(found) != 0 {
			t.Errorf("after a boot there are %v, %v", found, err)
		}
	})
	t.Run("the lock", func(t *testing.T) {
		t.Parallel()
		e, _ := host(t)
		ctx, cancel := context.WithCancel(deadline(t))
		cancel()
		if _, err := e.Host().Lock(ctx); err == nil {
			t.Error("the lock was given twice")
		}
	})
	t.Run("every assumption has a reason", func(t *testing.T) {
		t.Parallel()
		for _, a := range Assumptions() {
			if a.Rule == "" || a.Reason == "" {
				t.Errorf("%+v", a)
			}
		}
	})
}
