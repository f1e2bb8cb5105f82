package hnssim

import (
	"testing"

	"calico-cni/windows/hns"
)

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
