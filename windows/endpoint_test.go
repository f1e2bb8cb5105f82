package windows

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

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

// requestQuietly makes the namespace before any fault counts.

// callsOf are the calls of a first ADD.

// killedAt runs an ADD whose process dies at a call: from then on none of its

// calls does anything, and the operating system frees its lock.

// mortal is the service as a process sees it that is killed when ctx ends:

// nothing is cleaned up with another context.
