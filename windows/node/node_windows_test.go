package node

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"calico-cni/windows/hns"
)

// These tests run under Wine against a simulated host (test/windows).

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const noObject = "0a1b2c3d-0000-1111-2222-333344445555"

// TestNotFound goes through the four ways in which HNS, or the package that
// calls it, says that an object does not exist.
func TestNotFound(t *testing.T) {
	ctx, service := deadline(t), Service{}
	for name, c := range map[string]struct {
		ask  func() error
		code hns.Code
	}{
		"look-up of an endpoint":    {func() error { _, err := service.EndpointByID(ctx, noObject); return err }, hns.EndpointNotFound},
		"look-up of a namespace":    {func() error { _, err := service.NamespaceByID(ctx, noObject); return err }, hns.ElementNotFound},
		"deletion of a network":     {func() error { return service.DeleteNetwork(ctx, noObject) }, hns.NetworkNotFound},
		"deletion of an endpoint":   {func() error { return service.DeleteEndpoint(ctx, noObject) }, hns.EndpointNotFound},
		"attaching to no namespace": {func() error { return service.Attach(ctx, noObject, noObject) }, hns.ElementNotFound},
		"policy of no network":      {func() error { return service.AddNetworkPolicy(ctx, noObject, hns.Policy{Type: "HostRoute"}) }, hns.NetworkNotFound},
	} {
		if err := c.ask(); !hns.IsNotFound(err) || hns.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want code 0x%X", name, err, uint32(c.code))
		}
	}
	if found, err := service.EndpointsByName(ctx, "nobody"); err != nil || len(found) != 0 {
		t.Errorf("a name that nobody has: %v, %v", found, err)
	}
}

func TestRefusal(t *testing.T) {
	_, err := Service{}.CreateNetwork(deadline(t), hns.Network{Name: "bad", Type: "Overlay", SchemaVersion: hns.Schema2(), Ipams: []hns.Ipam{{
		Type: "Static", Subnets: []hns.Subnet{{IPAddressPrefix: "10.1.0.0/24", Routes: []hns.Route{{NextHop: "10.1.0.1", DestinationPrefix: "0.0.0.0/0"}}}}}}})
	if hns.CodeOf(err) != hns.InvalidPolicy {
		t.Errorf("an Overlay network without VSID: %v", err)
	}
	version, err := Service{}.Version(deadline(t))
	if err != nil || version != (hns.Version{Major: 13, Minor: 2}) {
		t.Errorf("version %v, %v", version, err)
	}
	ctx, cancel := context.WithCancel(deadline(t))
	cancel()
	if _, err := (Service{}).Networks(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a call after its end: %v", err)
	}
}

func TestHost(t *testing.T) {
	host := Host{}
	interfaces, err := host.Interfaces()
	at := slices.IndexFunc(interfaces, func(i hns.Interface) bool { return i.Name == "Ethernet" })
	if err != nil || at < 0 || interfaces[at].MAC.String() != "00:15:5d:10:20:30" || interfaces[at].Addresses[0].String() != "172.20.41.103/19" {
		t.Fatalf("interfaces %v, %v", interfaces, err)
	}
	index := interfaces[at].Index
	for _, want := range []bool{false, true} {
		if on, err := host.Forwarding(index); err != nil || on != want {
			t.Errorf("forwarding is %t, %v", on, err)
		}
		if err := host.EnableForwarding(index); err != nil {
			t.Error(err)
		}
	}
	route := hns.HostRoute{Destination: netip.MustParsePrefix("169.254.169.123/32"), Gateway: netip.MustParseAddr("172.20.32.1"),
		Interface: index, Metric: 12, Persistent: true}
	if err := host.AddRoute(route); err != nil {
		t.Fatal(err)
	}
	routes, err := host.Routes()
	if err != nil || !slices.Contains(routes, route) {
		t.Errorf("routes %v, %v: %v is missing", routes, err, route)
	}
	build, err := host.Build()
	if want := os.Getenv("WANT_BUILD"); err != nil || want != "20348" || build != 20348 {
		t.Errorf("build %d, %v, want %s", build, err, want)
	}
}

func TestLock(t *testing.T) {
	host := Host{}
	unlock, err := host.Lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	other := make(chan error)
	short := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		unlock, err := host.Lock(ctx)
		if err == nil {
			unlock()
		}
		other <- err
	}
	go short()
	if err := <-other; !errors.Is(err, hns.ErrLockHeld) {
		t.Errorf("the lock was taken twice: %v", err)
	}
	unlock()
	go short()
	if err := <-other; err != nil {
		t.Errorf("the lock was not freed: %v", err)
	}
}
