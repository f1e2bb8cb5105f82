package netconf

import (
	"testing"

	"calico-cni/pkg/cnierr"
)

func TestDocument(t *testing.T) {
	t.Parallel()
	const stdin = `{"cniVersion":"1.0.0","name":"n","own":{"n":12345678901234567890,"f":1.50,"html":"<a&b>x"},"IPAM":{"Type":"calico-ipam","IPv4_Pools":["a"]}}`
	conf := parse(t, stdin)
	document := conf.Document()
	document.SetIPAM("ipv4_pools", []string{"10.77.0.0/16"})
	document.SetIPAM("assign_ipv6", "true")
	body, err := document.Bytes()
	const want = `{"IPAM":{"Type":"calico-ipam","assign_ipv6":"true","ipv4_pools":["10.77.0.0/16"]},"cniVersion":"1.0.0","name":"n","own":{"f":1.50,"html":"<a&b>x","n":12345678901234567890}}`
	if err != nil || string(body) != want {
		t.Errorf("got  %s, %v\nwant %s", body, err, want)
	}
	again, err := conf.Document().Bytes()
	if err != nil || len(again) != len(stdin) {
		t.Errorf("changing a copy changed the document: %s, %v", again, err)
	}
}

func TestDocumentRanges(t *testing.T) {
	t.Parallel()
	conf := parse(t, `{"name":"n","ipam":{"type":"host-local","subnet":"usePodCidr","dataDir":"/d",
		"ranges":[[{"subnet":"USEPODCIDRIPV6","gateway":"fd00::1"}],[{"subnet":"10.1.0.0/16"},{}]]}}`)
	document := conf.Document()
	ranges, err := document.Ranges()
	if err != nil {
		t.Fatal(err)
	}
	cidrs := map[Family]string{IPv4: "10.9.0.0/24", IPv6: "fd00:9::/120"}
	for _, r := range ranges {
		subnet, ok, err := r.Text("subnet")
		if err != nil {
			t.Fatal(err)
		}
		if family, isPlaceholder := PodCIDRFamily(subnet); ok && isPlaceholder {
			r.Set("subnet", cidrs[family])
		}
	}
	body, err := document.Bytes()
	const want = `{"ipam":{"dataDir":"/d","ranges":[[{"gateway":"fd00::1","subnet":"fd00:9::/120"}],[{"subnet":"10.1.0.0/16"},{}]],"subnet":"10.9.0.0/24","type":"host-local"},"name":"n"}`
	if err != nil || string(body) != want {
		t.Errorf("Network/42 placeholders in subnet and ranges, any case:\ngot  %s, %v\nwant %s", body, err, want)
	}
}

func TestDocumentRangesRefuses(t *testing.T) {
	t.Parallel()
	for ranges, part := range map[string]string{
		`{}`:       "ipam.ranges: want a list of lists, found an object",
		`[{}]`:     "ipam.ranges[0]: want a list of objects, found an object",
		`[[],[7]]`: "ipam.ranges[1][0]: want an object, found 7",
	} {
		t.Run(ranges, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, `{"name":"n","ipam":{"type":"host-local","ranges":`+ranges+`}}`).Document().Ranges()
			wantError(t, err, cnierr.InvalidConfiguration, part)
		})
	}
	ranges, err := parse(t, `{"name":"n","ipam":{"type":"host-local","subnet":7}}`).Document().Ranges()
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = ranges[0].Text("subnet")
	wantError(t, err, cnierr.InvalidConfiguration, "ipam.subnet: want a string, found 7")
}
