package ipamplugin

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"calico-cni/pkg/cnierr"
)

func TestPrevious(t *testing.T) {
	t.Parallel()
	const ips = `"ips":[{"address":"10.77.0.5/32","version":"4"}]`
	for name, test := range map[string]struct {
		version, raw string
		want         bool
	}{
		"the configuration's version": {"1.1.0", `{"cniVersion":"1.1.0",` + ips + `}`, true},
		"a version of its own":        {"1.1.0", `{"cniVersion":"0.4.0",` + ips + `}`, true},
		"no version":                  {"0.4.0", `{` + ips + `}`, true},
		"an empty version":            {"1.0.0", `{"cniVersion":"",` + ips + `}`, true},
		"an unknown version":          {"1.0.0", `{"cniVersion":"9.0.0",` + ips + `}`, false},
		"not an object":               {"1.0.0", `[]`, false},
		"a bad address":               {"1.0.0", `{"ips":[{"address":"x"}]}`, false},
	} {
		result, err := Previous(test.version, json.RawMessage(test.raw))
		if !test.want {
			wantCode(t, err, cnierr.InvalidConfiguration, "prevResult")
			continue
		}
		if err != nil || len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.77.0.5/32" {
			t.Errorf("%s: %v, %v", name, result, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	interfaces := `"interfaces":[{"name":"lo","sandbox":"/ns"},{"name":"cali1"},{"name":"eth0","sandbox":"/ns"},{"name":"eth0","sandbox":"/other"}]`
	raw := fmt.Sprintf(`{"cniVersion":"1.1.0",%s,"ips":[
		{"interface":0,"address":"127.0.0.1/8"},{"interface":2,"address":"10.77.0.5/32"},{"interface":2,"address":"fd00::5/128"},
		{"interface":3,"address":"10.77.0.6/32"},{"interface":9,"address":"10.77.0.7/32"},{"address":"10.77.0.8/32"}]}`, interfaces)
	result, err := Previous("1.1.0", json.RawMessage(raw))
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("10.77.0.5"), netip.MustParseAddr("fd00::5"), netip.MustParseAddr("10.77.0.8")}
	if got := Addresses(result, "eth0", "/ns"); !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
}
