package windows

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

func TestPodEndpoint(t *testing.T) {
	t.Parallel()
	t.Run("Windows/11 gateway", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		if got := n.endpoint("c1_Calico").Routes; len(got) != 1 || got[0].NextHop != "10.48.5.65" {
			t.Errorf("routes on Overlay %v", got)
		}
		n = newNode(t, l2bridge)
		n.add("c1", "10.48.5.68/26")
		if got := n.endpoint("c1_Calico").Routes; len(got) != 1 || got[0].NextHop != "10.48.5.66" {
			t.Errorf("routes on L2Bridge %v", got)
		}
	})
	t.Run("Windows/12 MAC from the address", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		if got := n.endpoint("c1_Calico").MACAddress; got != "0E-2A-0a-30-05-44" {
			t.Errorf("MAC %s", got)
		}
	})
	for _, prefix := range []string{"0E2A", "0E-2A-", "", "0X-2A", "0E:2A"} {
		t.Run(fmt.Sprintf("Windows/12 MAC prefix %q", prefix), func(t *testing.T) {
			n := newNode(t, func(o *Options) { o.MACPrefix = prefix })
			r := n.request("c1", "10.48.5.68/26")
			n.engine.ClearLog()
			_, err := n.tryAdd(r)
			wantCode(t, err, cnierr.InvalidConfiguration, "vxlan_mac_prefix")
			n.wantUntouched()
		})
	}
	t.Run("Windows/13 MAC of L2Bridge is HNS's", func(t *testing.T) {
		n := newNode(t, l2bridge)
		link := n.add("c1", "10.48.5.68/26")
		mac := n.endpoint("c1_Calico").MACAddress
		if strings.Contains(firstNamed(t, n.sent("CreateEndpoint"), "c1_Calico"), "MacAddress") {
			t.Error("a MAC was asked for")
		}
		if link.ReportedMAC != mac || link.MAC != strings.ToLower(strings.ReplaceAll(mac, "-", ":")) {
			t.Errorf("HNS says %s, ADD %s and %s", mac, link.ReportedMAC, link.MAC)
		}
	})
	t.Run("Windows/14 name in both naming modes", func(t *testing.T) {
		n := newNode(t)
		n.add("7be1c09d", "10.48.5.68/26")
		n.endpoint("7be1c09d_Calico")
		n = newNode(t, manyNetworks)
		n.add("7be1c09d", "10.48.5.68/26")
		n.endpoint("7be1c09d_Calico")
	})
	t.Run("the whole document", func(t *testing.T) {
		n := newNode(t)
		r := n.request("7be1c09d", "10.48.5.68/26")
		r.DNS = dataplane.DNS{Servers: []string{"10.96.0.10"}, Search: []string{"shop.svc.cluster.local"}, Options: []string{"ndots:5"}}
		link, err := n.tryAdd(r)
		if err != nil {
			t.Fatal(err)
		}
		wantJSON(t, firstNamed(t, n.sent("CreateEndpoint"), "7be1c09d_Calico"), `{"Name":"7be1c09d_Calico",
			"HostComputeNetwork":"`+created(t, n, "7be1c09d_Calico")+`","MacAddress":"0E-2A-0a-30-05-44",
			"IpConfigurations":[{"IpAddress":"10.48.5.68"}],
			"Dns":{"Search":["shop.svc.cluster.local"],"ServerList":["10.96.0.10"],"Options":["ndots:5"]},
			"Routes":[{"NextHop":"10.48.5.65","DestinationPrefix":"0.0.0.0/0"}],
			"Policies":[{"Type":"OutBoundNAT","Settings":{"Exceptions":["10.48.0.0/16","172.20.32.0/19"]}},
				{"Type":"ProviderAddress","Settings":{"ProviderAddress":"172.20.41.103"}}],
			"SchemaVersion":{"Major":2,"Minor":0}}`)
		want := dataplane.Link{HostInterface: "cali0123456789a", ID: link.ID, MAC: "0e:2a:0a:30:05:44", ReportedMAC: "0E-2A-0a-30-05-44",
			Prefixes: []netip.Prefix{netip.MustParsePrefix("10.48.5.68/26")},
			Tunnels:  []dataplane.Tunnel{{Address: netip.MustParseAddr("10.48.5.65"), MAC: "00:15:5d:ab:cd:ef"}}}
		if got, _ := json.Marshal(link); string(got) != string(mustJSON(want)) {
			t.Errorf("ADD says\n%s\nwant\n%s", got, mustJSON(want))
		}
	})
}

func mustJSON(v any) []byte {
	body, _ := json.Marshal(v)
	return body
}

func TestDefaultDeny(t *testing.T) {
	t.Parallel()
	t.Run("Windows/27 exact document, once", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.add("c1", "10.48.5.68/26")
			sent := n.sent("ModifyEndpoint")
			if len(sent) != 1 {
				t.Fatalf("%d changes of endpoints", len(sent))
			}
			wantJSON(t, sent[0], `{"ResourceType":"Policy","RequestType":"Update","Settings":{"Policies":[{"Type":"ACL","Settings":
				{"Protocols":"256","Action":"Block","Direction":"In","RuleType":"Switch","Priority":65500}}]}}`)
			if got := policiesOf(n.endpoint("c1_Calico"), "ACL"); len(got) != 1 {
				t.Errorf("the endpoint has %v", got)
			}
		})
	})
	t.Run("Windows/27 absent with the flag", func(t *testing.T) {
		n := newNode(t, func(o *Options) { o.DisableDefaultDeny = true })
		n.add("c1", "10.48.5.68/26")
		if got := policiesOf(n.endpoint("c1_Calico"), "ACL"); len(got) != 0 {
			t.Errorf("the endpoint has %v", got)
		}
	})
	t.Run("Windows/28 failure: the endpoint is gone", func(t *testing.T) {
		n := newNode(t)
		n.engine.Inject(hnssim.Fault{Call: "ModifyEndpoint", Code: hns.InvalidPolicy})
		_, err := n.tryAdd(n.request("c1", "10.48.5.68/26"))
		wantCode(t, err, cnierr.HNSRefused, "c1_Calico", "0x803B000D")
		n.wantNames(n.endpointNames(), "Calico_ep")
	})
}

func TestRepair(t *testing.T) {
	t.Parallel()
	t.Run("Windows/29 left over endpoint with the pod's address", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			r := n.request("old", "10.48.5.68/26")
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			n.removeNamespace(r.Namespace)
			n.add("new", "10.48.5.68/26")
			n.wantNames(n.endpointNames(), "Calico_ep", "new_Calico")
		})
	})
	t.Run("a live pod with the address keeps it", func(t *testing.T) {
		n := newNode(t, l2bridge)
		n.add("old", "10.48.5.68/26")
		_, err := n.tryAdd(n.request("new", "10.48.5.68/26"))
		wantCode(t, err, cnierr.HNSRefused, "in use")
		n.wantNames(n.endpointNames(), "Calico_ep", "old_Calico")
	})
	t.Run("Windows/30 creation fails three times", func(t *testing.T) {
		n := newNode(t)
		n.add("c0", "10.48.5.67/26")
		n.engine.Inject(hnssim.Fault{Call: "CreateEndpoint", Times: 3, Code: 0x80070015})
		n.add("c1", "10.48.5.68/26")
	})
	t.Run("Windows/30 creation fails four times", func(t *testing.T) {
		n := newNode(t)
		n.add("c0", "10.48.5.67/26")
		n.engine.Inject(hnssim.Fault{Call: "CreateEndpoint", Times: 4, Code: 0x80070015, After: true})
		_, err := n.tryAdd(n.request("c1", "10.48.5.68/26"))
		wantCode(t, err, cnierr.HNSRefused, "0x80070015")
		n.wantNames(n.endpointNames(), "Calico_ep", "c0_Calico")
	})
	t.Run("Windows/31 attach failure removes the new endpoint", func(t *testing.T) {
		n := newNode(t)
		n.add("c0", "10.48.5.67/26")
		n.engine.Inject(hnssim.Fault{Call: "ModifyNamespace", Code: 0x80070015})
		_, err := n.tryAdd(n.request("c1", "10.48.5.68/26"))
		wantCode(t, err, cnierr.HNSRefused, "attaching")
		n.engine.ClearFaults()
		n.wantNames(n.endpointNames(), "Calico_ep", "c0_Calico")
	})
	t.Run("Windows/31 the namespace is gone: at once, and nothing is left", func(t *testing.T) {
		n := newNode(t)
		r := n.request("c1", "10.48.5.68/26")
		n.removeNamespace(r.Namespace)
		_, err := n.tryAdd(r)
		wantCode(t, err, cnierr.InvalidEnvironment, "CNI_NETNS", r.Namespace)
		n.wantNames(n.endpointNames(), "Calico_ep")
		if made := n.sent("CreateEndpoint"); len(made) != 2 {
			t.Errorf("%d endpoints were made, want the host's and one try", len(made))
		}
	})
	t.Run("Windows/32 second ADD with a new address", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			r := n.request("c1", "10.48.5.68/26")
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			r.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.48.5.69/26")}
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			if got := addressOf(n.endpoint("c1_Calico")).String(); got != "10.48.5.69" {
				t.Errorf("its address is %s", got)
			}
		})
	})
	t.Run("second ADD with the same address adopts the endpoint", func(t *testing.T) {
		n := newNode(t)
		r := n.request("c1", "10.48.5.68/26")
		first, err := n.tryAdd(r)
		if err != nil {
			t.Fatal(err)
		}
		second, err := n.tryAdd(r)
		if err != nil {
			t.Fatal(err)
		}
		if !hns.SameID(first.ID, second.ID) || len(policiesOf(n.endpoint("c1_Calico"), "ACL")) != 1 {
			t.Errorf("%+v became %+v", first, second)
		}
	})
	t.Run("every call of ADD fails once, before and after its work", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			calls := callsOf(t, mode)
			for at := range calls {
				for _, after := range []bool{false, true} {
					n := newNode(t, mode)
					n.engine.Inject(hnssim.Fault{Skip: at, Times: 1, Code: 0x80070015, After: after})
					r := n.requestQuietly("c1", "10.48.5.68/26")
					if _, err := n.tryAdd(r); err != nil {
						n.wantNoEndpointOf("c1")
					}
					n.engine.ClearFaults()
					if _, err := n.tryAdd(r); err != nil {
						t.Errorf("call %d (%s): the repetition fails: %v", at, calls[at].Name, err)
					}
					n.wantNames(n.endpointNames(), "Calico_ep", "c1_Calico")
					n.wantNames(n.networkNames(), "Calico")
				}
			}
		})
	})
	t.Run("killed at every call of ADD, then repeated", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			calls := callsOf(t, mode)
			for at := range calls {
				n := newNode(t, mode)
				r := n.requestQuietly("c1", "10.48.5.68/26")
				n.killedAt(at, r)
				if _, err := n.tryAdd(r); err != nil {
					t.Errorf("killed at call %d (%s): the repetition fails: %v", at, calls[at].Name, err)
				}
				n.wantNames(n.endpointNames(), "Calico_ep", "c1_Calico")
				n.wantNames(n.networkNames(), "Calico")
			}
		})
	})
	t.Run("lists are made again when an object goes meanwhile", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		gone := n.endpoint("c1_Calico").ID
		n.engine.Inject(hnssim.Fault{Call: "OpenEndpoint", Times: 1, During: func() { n.remove(gone) }})
		if _, err := n.plane.Owned(deadline(t)); err != nil {
			t.Error(err)
		}
	})
}

// requestQuietly makes the namespace before any fault counts.
func (n *node) requestQuietly(container, address string) dataplane.Request {
	faults := n.engine.TakeFaults()
	defer n.engine.PutFaults(faults)
	return n.request(container, address)
}

func (n *node) wantNoEndpointOf(container string) {
	n.t.Helper()
	if slices.Contains(n.endpointNames(), container+"_Calico") {
		n.t.Errorf("an endpoint of the failed ADD is left: %v", n.endpointNames())
	}
}

// callsOf are the calls of a first ADD.
func callsOf(t *testing.T, mode func(*Options)) []hnssim.Call {
	n := newNode(t, mode)
	r := n.request("c1", "10.48.5.68/26")
	n.engine.ClearLog()
	if _, err := n.tryAdd(r); err != nil {
		t.Fatal(err)
	}
	return n.engine.Calls()
}

// killedAt runs an ADD whose process dies at a call: from then on none of its
// calls does anything, and the operating system frees its lock.
func (n *node) killedAt(at int, r dataplane.Request) {
	ctx, kill := context.WithCancel(deadline(n.t))
	n.engine.Inject(hnssim.Fault{Skip: at, Times: 1, During: kill})
	dead := *n.plane
	dead.Options.Service = mortal{dead.Options.Service, ctx}
	_, _ = dead.Add(ctx, r)
	n.engine.ClearFaults()
}

// mortal is the service as a process sees it that is killed when ctx ends:
// nothing is cleaned up with another context.
type mortal struct {
	hns.Service
	life context.Context
}

func (m mortal) DeleteEndpoint(_ context.Context, id string) error {
	return m.Service.DeleteEndpoint(m.life, id)
}

func (m mortal) Detach(_ context.Context, namespaceID, endpointID string) error {
	return m.Service.Detach(m.life, namespaceID, endpointID)
}

func TestLock(t *testing.T) {
	t.Parallel()
	t.Run("Windows/40 twenty ADDs at once", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			var all sync.WaitGroup
			for i := range 20 {
				r := n.request(fmt.Sprintf("c%02d", i), fmt.Sprintf("10.48.5.%d/26", 67+i))
				all.Go(func() {
					if _, err := n.tryAdd(r); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if got := len(n.endpoints()); got != 21 {
				t.Errorf("%d endpoints", got)
			}
			if made := n.sent("CreateNetwork"); len(made) != 1 {
				t.Errorf("%d networks were made", len(made))
			}
		})
	})
	t.Run("Windows/41 lock held elsewhere", func(t *testing.T) {
		n := newNode(t)
		unlock, err := n.engine.Host().Lock(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		r := n.request("c1", "10.48.5.68/26")
		n.engine.ClearLog()
		ctx, cancel := context.WithTimeout(deadline(t), 10*time.Millisecond)
		defer cancel()
		_, err = n.plane.Add(ctx, r)
		wantCode(t, err, cnierr.LockNotObtained, "network lock")
		n.wantUntouched()
	})
}

func TestCost(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode func(*Options)) {
		n := newNode(t, mode)
		for i := range 20 {
			n.add(fmt.Sprintf("c%d", i), fmt.Sprintf("10.48.5.%d/26", 67+i))
		}
		n.engine.ClearLog()
		link := n.add("new", "10.48.5.90/26")
		if err := n.plane.Confirm(deadline(t), link); err != nil {
			t.Fatal(err)
		}
		operations := slices.DeleteFunc(n.engine.Operations(), func(o string) bool { return o == "CreateNamespace" })
		if len(operations) > 8 || slices.Contains(operations, "Endpoints") || slices.Contains(operations, "EndpointsOfNetwork") {
			t.Errorf("ADD has %d operations: %v", len(operations), operations)
		}
		n.engine.ClearLog()
		n.del("new")
		operations = n.engine.Operations()
		if len(operations) > 4 || slices.Contains(operations, "Endpoints") || slices.Contains(operations, "EndpointsOfNetwork") {
			t.Errorf("DEL has %d operations: %v", len(operations), operations)
		}
	})
}

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
