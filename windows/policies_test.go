package windows

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
)

// given is one case of the policies of an endpoint.
type given struct {
	options  Options
	pools    []dataplane.Pool
	host     string
	want     string
	l2bridge bool
}

func (g given) check(t *testing.T) {
	t.Helper()
	g.options.Overlay = !g.l2bridge
	var host netip.Prefix
	if g.host != "" {
		host = netip.MustParsePrefix(g.host)
	}
	pod, management := netip.MustParseAddr("10.48.5.68"), netip.MustParseAddr("172.20.41.103")
	policies, err := g.options.endpointPolicies(pod, management, natOf(pod, g.pools, host))
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, string(mustJSON(policies)), g.want)
}

func entries(values ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, value := range values {
		out = append(out, json.RawMessage(value))
	}
	return out
}

const (
	provided = `{"Type":"ProviderAddress","Settings":{"ProviderAddress":"172.20.41.103"}}`
	routed   = `{"Type":"SDNRoute","Settings":{"DestinationPrefix":"172.20.41.103/32","NeedEncap":true}}`
)

func manyPools() []dataplane.Pool {
	return append(pools(),
		dataplane.Pool{Name: "disabled", CIDR: netip.MustParsePrefix("10.49.0.0/16")},
		dataplane.Pool{Name: "six", CIDR: netip.MustParsePrefix("fd00::/112")})
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	services := entries(`{"Type":"OutBoundNAT","ExceptionList":["10.96.0.0/12"]}`)
	without := pools()
	without[0].NATOutgoing = false
	cases := map[string]given{
		"Windows/16 exceptions: configuration, pools, host subnet": {
			options: Options{Policies: services}, pools: manyPools(), host: "172.20.41.103/19",
			want: `[{"Type":"OutBoundNAT","Settings":{"Exceptions":["10.96.0.0/12","10.48.0.0/16","10.49.0.0/16","172.20.32.0/19"]}},` + provided + `]`},
		"Windows/16 every OutBoundNAT entry, in any case and schema, keeping its other fields, without doubles": {
			options: Options{Policies: entries(`{"Type":"outboundnat","ExceptionList":["10.48.0.0/16"],"VirtualIP":"1.2.3.4"}`,
				`{"Type":"OutBoundNAT","Settings":{"Exceptions":["10.1.0.0/16"],"Flags":1}}`)},
			pools: pools(), host: "172.20.41.103/19",
			want: `[{"Type":"OutBoundNAT","Settings":{"Exceptions":["10.48.0.0/16","172.20.32.0/19"],"VirtualIP":"1.2.3.4"}},
				{"Type":"OutBoundNAT","Settings":{"Exceptions":["10.1.0.0/16","10.48.0.0/16","172.20.32.0/19"],"Flags":1}},` + provided + `]`},
		"Windows/17 no host subnet": {
			options: Options{Policies: services}, pools: pools(),
			want: `[{"Type":"OutBoundNAT","Settings":{"Exceptions":["10.96.0.0/12","10.48.0.0/16"]}},` + provided + `]`},
		"Windows/18 pool without natOutgoing": {
			options: Options{Policies: entries(string(services[0]), `{"Type":"QOS","MaximumOutgoingBandwidthInBytes":9}`)}, pools: without, host: "172.20.41.103/19",
			want: `[{"Type":"QOS","Settings":{"MaximumOutgoingBandwidthInBytes":9}},` + provided + `]`},
		"Windows/19 address in no pool": {
			pools: []dataplane.Pool{{CIDR: netip.MustParsePrefix("10.50.0.0/16")}}, host: "172.20.41.103/19",
			want: `[{"Type":"OutBoundNAT","Settings":{"Exceptions":["10.50.0.0/16","172.20.32.0/19"]}},` + provided + `]`},
		"Windows/20 one is generated": {
			pools: pools(), want: `[{"Type":"OutBoundNAT","Settings":{"Exceptions":["10.48.0.0/16"]}},` + provided + `]`},
		"Windows/20 none is generated without exceptions": {want: `[` + provided + `]`},
		"Windows/22 SDNROUTE": {
			options: Options{Policies: entries(`{"Type":"SDNROUTE","DestinationPrefix":"10.96.0.0/12","NeedEncap":true,"NextHop":"10.1.1.1"}`)}, pools: without,
			want: `[{"Type":"SDNRoute","Settings":{"DestinationPrefix":"10.96.0.0/12","NeedEncap":true,"NextHop":"10.1.1.1"}},` + provided + `]`},
		"Windows/23 ROUTE and PA of schema 1": {
			options: Options{Policies: entries(`{"Type":"ROUTE","DestinationPrefix":"10.96.0.0/12","NeedEncap":true}`, `{"Type":"PA","PA":"172.20.41.104"}`)}, pools: without,
			want: `[{"Type":"SDNRoute","Settings":{"DestinationPrefix":"10.96.0.0/12","NeedEncap":true}},
				{"Type":"ProviderAddress","Settings":{"ProviderAddress":"172.20.41.104"}},` + provided + `]`},
		"Windows/24 L2Bridge": {l2bridge: true, want: `[` + routed + `]`},
		"Windows/24 Overlay":  {want: `[` + provided + `]`},
		"Windows/25 loopback DSR": {
			options: Options{LoopbackDSR: true}, want: `[` + provided + `,{"Type":"OutBoundNAT","Settings":{"Destinations":["10.48.5.68"]}}]`},
		"Windows/25 loopback DSR without natOutgoing": {
			options: Options{LoopbackDSR: true}, pools: without,
			want: `[` + provided + `,{"Type":"OutBoundNAT","Settings":{"Destinations":["10.48.5.68"]}}]`},
		"Windows/63 management interface with prefix /32": {
			pools: pools(), host: "172.20.41.103/32",
			want: `[{"Type":"OutBoundNAT","Settings":{"Exceptions":["10.48.0.0/16","172.20.41.103/32"]}},` + provided + `]`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func TestBadPolicies(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{`{"ExceptionList":[]}`, `{"Type":7}`, `{"Type":""}`, `[]`, `"OutBoundNAT"`, `null`,
		`{"Type":"OutBoundNAT","ExceptionList":"10.0.0.0/8"}`, `{"Type":"OutBoundNAT","ExceptionList":[1]}`} {
		t.Run("Windows/55 "+bad, func(t *testing.T) {
			n := newNode(t, func(o *Options) { o.Policies = entries(`{"Type":"QOS"}`, bad) })
			r := n.request("c1", "10.48.5.68/26")
			n.engine.ClearLog()
			_, err := n.tryAdd(r)
			wantCode(t, err, cnierr.InvalidConfiguration, "policies", "number 2")
			wantCode(t, n.plane.Possible(), cnierr.InvalidConfiguration, "policies")
			n.wantUntouched()
		})
	}
}

func TestPoliciesOnTheHost(t *testing.T) {
	t.Parallel()
	t.Run("Windows/17 the flag leaves the host's subnet out", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode, func(o *Options) { o.DisableHostSubnetNATExclusion = true })
			n.add("c1", "10.48.5.68/26")
			wantJSON(t, policiesOf(n.endpoint("c1_Calico"), "OutBoundNAT")[0], `{"Exceptions":["10.48.0.0/16"]}`)
		})
	})
	t.Run("Windows/63 the host's address as /32", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.engine.Readdress(netip.MustParsePrefix("172.20.41.103/32"))
			n.add("c1", "10.48.5.68/26")
			wantJSON(t, policiesOf(n.endpoint("c1_Calico"), "OutBoundNAT")[0], `{"Exceptions":["10.48.0.0/16","172.20.41.103/32"]}`)
		})
	})
	t.Run("Windows/21 what changes after ADD does not change an endpoint", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			n.add("c1", "10.48.5.68/26")
			before := n.endpoint("c1_Calico")
			n.configure(mode, func(o *Options) {
				o.DisableHostSubnetNATExclusion = true
				o.Policies = entries(`{"Type":"OutBoundNAT","ExceptionList":["10.96.0.0/12"]}`)
			})
			r := n.request("c2", "10.48.5.69/26")
			r.Pools = append(r.Pools, dataplane.Pool{Name: "new", CIDR: netip.MustParsePrefix("10.60.0.0/16"), IPIPMode: "Never", VXLANMode: "Always"})
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			n.del("c2")
			after := n.endpoint("c1_Calico")
			if string(mustJSON(before.Policies)) != string(mustJSON(after.Policies)) || string(mustJSON(before.Routes)) != string(mustJSON(after.Routes)) {
				t.Errorf("the endpoint\n%s\nbecame\n%s", mustJSON(before), mustJSON(after))
			}
		})
	})
	t.Run("Windows/26 DNS as given", func(t *testing.T) {
		n := newNode(t)
		r := n.request("c1", "10.48.5.68/26")
		r.DNS = dataplane.DNS{Servers: []string{"10.96.0.10"}, Domain: "cluster.local", Search: []string{"a", "b"}, Options: []string{"ndots:5"}}
		if _, err := n.tryAdd(r); err != nil {
			t.Fatal(err)
		}
		got := n.endpoint("c1_Calico").DNS
		if got.Domain != "cluster.local" || !slices.Equal(got.ServerList, r.DNS.Servers) || !slices.Equal(got.Search, r.DNS.Search) || !slices.Equal(got.Options, r.DNS.Options) {
			t.Errorf("DNS is %+v", got)
		}
	})
}
