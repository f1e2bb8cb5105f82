package model_test

import (
	"net/netip"
	"testing"

	"calico-cni/pkg/model"
)

func TestNodeAddress(t *testing.T) {
	t.Parallel()
	const kubelet = `"addresses":[{"type":"Hostname","address":"worker-b"},{"type":"ExternalIP","address":"203.0.113.12"},
		{"type":"InternalIP","address":"fe80::1"},{"type":"InternalIP","address":"192.0.2.13"},{"type":"InternalIP","address":"2001:db8::13"}]`
	for name, row := range map[string]struct {
		annotations, status string
		ipv4, ipv6          string
	}{
		"none":                   {"", "", "", ""},
		"from the agent":         {`"projectcalico.org/IPv4Address":"192.0.2.12/24","projectcalico.org/IPv6Address":"2001:DB8::12/64"`, kubelet, "192.0.2.12", "2001:db8::12"},
		"from the kubelet":       {"", kubelet, "192.0.2.13", "2001:db8::13"},
		"one from each":          {`"projectcalico.org/IPv6Address":"2001:db8::12"`, kubelet, "192.0.2.13", "2001:db8::12"},
		"the agent's is no good": {`"projectcalico.org/IPv4Address":"192.0.2.300/24","projectcalico.org/IPv6Address":"fe80::2%eth0"`, kubelet, "192.0.2.13", "2001:db8::13"},
		"of the other family":    {`"projectcalico.org/IPv4Address":"2001:db8::14/64"`, "", "", "2001:db8::14"},
	} {
		node, err := model.DecodeCoreNode([]byte(`{"metadata":{"name":"worker-b","annotations":{` + row.annotations + `}},"status":{` + row.status + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		for family, want := range map[model.Family]string{model.IPv4: row.ipv4, model.IPv6: row.ipv6} {
			if got := node.Address(family); got.IsValid() != (want != "") || want != "" && got != netip.MustParseAddr(want) {
				t.Errorf("%s: %s address %s, want %q", name, family, got, want)
			}
		}
	}
}
