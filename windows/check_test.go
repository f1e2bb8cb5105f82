package windows

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

// expected is what CHECK expects of a request that was served.
func expected(r dataplane.Request, link dataplane.Link) dataplane.Expectation {
	return dataplane.Expectation{Attachment: r.Attachment, Namespace: r.Namespace, Addresses: r.Addresses, MAC: link.ReportedMAC}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	t.Run("Windows/58 right after ADD, and after changes that reach new pods only", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			r := n.request("c1", "10.48.5.68/26")
			link, err := n.tryAdd(r)
			if err != nil {
				t.Fatal(err)
			}
			n.engine.ClearLog()
			for range 2 {
				if diffs, err := n.plane.Differences(deadline(t), expected(r, link)); err != nil || len(diffs) > 0 {
					t.Errorf("differences %v, %v", diffs, err)
				}
				n.configure(mode, func(o *Options) {
					o.VNI, o.DisableHostSubnetNATExclusion, o.MACPrefix = 5000, true, "0E-2B"
				})
			}
			n.wantUntouched()
		})
	})
	type damage struct {
		name string
		do   func(*node, dataplane.Request)
		// words are of the differences in each mode; "" for none.
		overlay, l2bridge string
	}
	replaced := func(change func(*hns.Endpoint)) func(*node, dataplane.Request) {
		return func(n *node, _ dataplane.Request) {
			endpoint := n.endpoint("c1_Calico")
			namespace := endpoint.HostComputeNamespace
			n.remove(endpoint.ID)
			endpoint.HostComputeNamespace = ""
			change(&endpoint)
			made := n.make(endpoint)
			if err := n.engine.Service().Attach(deadline(n.t), namespace, made.ID); err != nil {
				n.t.Fatal(err)
			}
		}
	}
	for _, d := range []damage{
		{"endpoint gone", func(n *node, _ dataplane.Request) { n.del("c1") }, "c1_Calico is missing", "c1_Calico is missing"},
		{"namespace gone", func(n *node, r dataplane.Request) { n.removeNamespace(r.Namespace) }, "does not exist", "does not exist"},
		{"detached", func(n *node, r dataplane.Request) {
			if err := n.engine.Service().Detach(deadline(n.t), r.Namespace, n.endpoint("c1_Calico").ID); err != nil {
				n.t.Fatal(err)
			}
		}, "attached to namespace", "attached to namespace"},
		{"another address", replaced(func(e *hns.Endpoint) { e.IPConfigurations[0].IPAddress = "10.48.5.77" }), "address 10.48.5.77", "address 10.48.5.77"},
		{"another MAC", replaced(func(e *hns.Endpoint) { e.MACAddress = "02-00-00-00-00-09" }), "MAC 02-00-00-00-00-09", "MAC 02-00-00-00-00-09"},
		{"another gateway", replaced(func(e *hns.Endpoint) { e.Routes[0].NextHop = "10.48.5.99" }), "default route via 10.48.5.65", "default route via 10.48.5.66"},
		{"the host has another address", func(n *node, _ dataplane.Request) { n.engine.Readdress(netip.MustParsePrefix("172.20.41.150/19")) },
			"ProviderAddress 172.20.41.103", ""},
		{"host endpoint gone", func(n *node, _ dataplane.Request) { n.remove(n.endpoint("Calico_ep").ID) }, "Calico_ep is missing", "Calico_ep is missing"},
		{"host endpoint with another address", func(n *node, _ dataplane.Request) {
			host := n.endpoint("Calico_ep")
			n.remove(host.ID)
			host.HostComputeNamespace, host.IPConfigurations[0].IPAddress = "", "10.48.5.90"
			n.make(host)
		}, "10.48.5.90 instead of 10.48.5.66", "10.48.5.90 instead of 10.48.5.66"},
		{"host endpoint not as it must be", func(n *node, _ dataplane.Request) {
			host := n.endpoint("Calico_ep")
			n.remove(host.ID)
			host.HostComputeNamespace, host.Flags = "", 0
			n.make(host)
		}, "no remote endpoint", "not attached to the host"},
		{"endpoint twice", func(n *node, _ dataplane.Request) {
			n.allowFindings = true
			n.make(hns.Endpoint{Name: "c1_Calico", HostComputeNetwork: n.networks()[0].ID})
		}, "exists 2 times", "exists 2 times"},
		{"on a strange network", func(n *node, r dataplane.Request) {
			n.del("c1")
			other := n.makeNetwork(hns.Network{Name: "other", Type: "Transparent", Ipams: []hns.Ipam{{Subnets: []hns.Subnet{{
				IPAddressPrefix: "10.99.0.0/24", Routes: []hns.Route{{NextHop: "10.99.0.1", DestinationPrefix: "0.0.0.0/0"}}}}}}})
			n.make(hns.Endpoint{Name: "c1_Calico", HostComputeNetwork: other.ID})
		}, "none of configuration Calico", "none of configuration Calico"},
	} {
		t.Run("Windows/58 "+d.name, func(t *testing.T) {
			modes(t, func(t *testing.T, mode func(*Options)) {
				n := newNode(t, mode)
				r := n.request("c1", "10.48.5.68/26")
				link, err := n.tryAdd(r)
				if err != nil {
					t.Fatal(err)
				}
				d.do(n, r)
				diffs, err := n.plane.Differences(deadline(t), expected(r, link))
				want := d.overlay
				if !n.plane.Overlay {
					want = d.l2bridge
				}
				if err != nil || want == "" && len(diffs) > 0 || !strings.Contains(strings.Join(diffs, "; "), want) {
					t.Errorf("differences %v, %v, want %q", diffs, err, want)
				}
			})
		})
	}
	t.Run("Windows/58 a difference that goes within 2 s is none", func(t *testing.T) {
		n := newNode(t)
		r := n.request("c1", "10.48.5.68/26")
		link, err := n.tryAdd(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.engine.Service().Detach(deadline(t), r.Namespace, link.ID); err != nil {
			t.Fatal(err)
		}
		n.engine.Inject(hnssim.Fault{Call: "EnumerateEndpoints", Skip: 4, Times: 1, During: func() {
			if err := n.engine.Service().Attach(context.Background(), r.Namespace, link.ID); err != nil {
				t.Error(err)
			}
		}})
		if diffs, err := n.plane.Differences(deadline(t), expected(r, link)); err != nil || len(diffs) > 0 {
			t.Errorf("differences %v, %v", diffs, err)
		}
	})
	t.Run("HNS does not answer", func(t *testing.T) {
		n := newNode(t)
		n.engine.Inject(hnssim.Fault{Call: "EnumerateNetworks", Code: 0x800706BA})
		_, err := n.plane.Differences(deadline(t), dataplane.Expectation{})
		wantCode(t, err, cnierr.HNSRefused, "0x800706BA")
	})
}

func TestServes(t *testing.T) {
	t.Parallel()
	answer := func(used bool, err error) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) { return used, err }
	}
	t.Run("Windows/60 fresh node", func(t *testing.T) {
		n := newNode(t)
		if err := n.plane.Serves(deadline(t), answer(false, nil)); err != nil {
			t.Error(err)
		}
	})
	t.Run("Windows/60 networks lost while addresses are allocated", func(t *testing.T) {
		n := newNode(t)
		wantCode(t, n.plane.Serves(deadline(t), answer(true, nil)), cnierr.LimitedConnectivity, "no network")
	})
	t.Run("Windows/60 with a network the addresses are not asked for", func(t *testing.T) {
		n := newNode(t, manyNetworks)
		n.add("c1", "10.48.5.68/26")
		if err := n.plane.Serves(deadline(t), answer(true, errors.New("asked"))); err != nil {
			t.Error(err)
		}
	})
	t.Run("Windows/60 HNS down", func(t *testing.T) {
		n := newNode(t)
		n.engine.Inject(hnssim.Fault{Code: 0x800706BA})
		wantCode(t, n.plane.Serves(deadline(t), answer(false, nil)), cnierr.LimitedConnectivity, "0x800706BA")
	})
	t.Run("the real pause ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := pause(ctx, time.Hour); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := pause(deadline(t), time.Nanosecond); err != nil {
			t.Error(err)
		}
	})
}
