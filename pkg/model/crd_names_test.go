package model_test

import (
	"strings"
	"testing"

	"calico-cni/pkg/model"
)

// TestCIDRNames are the rows of datastore contract 3.4 and names read back.
func TestCIDRNames(t *testing.T) {
	t.Parallel()
	for cidr, name := range map[string]string{
		"10.77.3.64/26":             "10-77-3-64-26",
		"fd00:77:1::40/122":         "fd00-77-1--40-122",
		"fd00::/122":                "fd00---122",
		"2001:db8:1:2:3:4:5:40/122": "2001-db8-1-2-3-4-5-40-122",
	} {
		if made := model.CIDRName(prefix(cidr)); made != name {
			t.Errorf("%s: name %q, want %q", cidr, made, name)
		}
		if parsed, ok := model.ParseCIDRName(name); !ok || parsed != prefix(cidr) {
			t.Errorf("%q: parsed %v, %v", name, parsed, ok)
		}
	}
	for _, name := range []string{"", "-", "10-77-3-64", "10-77-3-65-26", "10-77-3-64-33", "fd00-0-0--40-122", "worker-b-10-77-3-64-26"} {
		if cidr, ok := model.ParseCIDRName(name); ok {
			t.Errorf("%q: parsed %v", name, cidr)
		}
	}
}

// TestAffinityNames are the rows of datastore contract 4.3.
func TestAffinityNames(t *testing.T) {
	t.Parallel()
	name := func(host string) string {
		return model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: prefix("10.77.3.64/26")}.ObjectName()
	}
	for host, want := range map[string]string{
		"worker-b":               "worker-b-10-77-3-64-26",
		strings.Repeat("n", 238): strings.Repeat("n", 238) + "-10-77-3-64-26", // 252 long
		strings.Repeat("n", 240): strings.Repeat("n", 226) + "-10-77-3-64-26-6493def1e63",
	} {
		if made := name(host); made != want {
			t.Errorf("host of %d characters: name %q, want %q", len(host), made, want)
		}
	}
	if length := len(name(strings.Repeat("n", 239))); length != 252 {
		t.Errorf("a name that would be 253 long has %d characters, want 252", length)
	}
	for host, want := range map[string]string{
		"worker-b":      "CX2QLHUEHULM6VCI5WXZCW66VEG3BCWWOICA6SF6TEZ3FLJDBZDQ",
		"node1":         "7DS2CCNJGGLTHBDQLLFO6SX24SY2YDDEG3W2VN556FA2W4DLLV5A",
		"load-balancer": "TAU2RK2F2FG7MIS72DPZYC6FJ3U3BIWIDZAMUTQY7ZXMSKQZ5GSQ",
	} {
		labels := model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: prefix("fd00::/122")}.Labels()
		if len(labels) != 3 || labels[model.LabelHostHash] != want || labels[model.LabelIPVersion] != "6" || labels[model.LabelAffinityType] != "host" {
			t.Errorf("labels of %s: %v", host, labels)
		}
	}
}

func TestHandleName(t *testing.T) {
	t.Parallel()
	if name := (model.HandleKey{ID: "Net-A.ABC"}).ObjectName(); name != "net-a.abc" {
		t.Errorf("name %q", name)
	}
}

func TestConvertUID(t *testing.T) {
	t.Parallel()
	const native, calico = "6f1c2a40-93b7-4d0e-8a51-0c7be2f9d318", "f6385402-c9ed-4d70-8a8a-30de479fcb18"
	for from, to := range map[string]string{native: calico, calico: native, "": "", "short": "short"} {
		if converted := model.ConvertUID(from); converted != to {
			t.Errorf("%q became %q, want %q", from, converted, to)
		}
	}
}
