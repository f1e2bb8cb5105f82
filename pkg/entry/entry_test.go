package entry

import (
	"testing"

	"calico-cni/pkg/cnierr"
)

func TestRole(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		row, arg0 string
		served    []string
		want      string
	}{
		{"Network/1 network plugin", "/opt/cni/bin/calico", []string{Network, IPAM}, Network},
		{"Network/1 IPAM plugin by the same executable", "/opt/cni/bin/calico-ipam", []string{Network, IPAM}, IPAM},
		{"Network/1 Windows", "calico-ipam.exe", []string{IPAM}, IPAM},
		{"Network/1 another name", "/opt/cni/bin/bridge", []string{Network, IPAM}, ""},
		{"Network/1 a role that the executable cannot serve", "/opt/cni/bin/calico", []string{IPAM}, ""},
		{"Network/1 a name that begins the same", "calico-ipam.old", []string{Network, IPAM}, ""},
	} {
		t.Run(test.row, func(t *testing.T) {
			t.Parallel()
			got, err := Role(test.arg0, test.served...)
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("role %q, %v, want %q", got, err, test.want)
			}
			if err != nil && cnierr.CodeOf(err) != cnierr.Startup {
				t.Errorf("code %d, want %d", cnierr.CodeOf(err), cnierr.Startup)
			}
		})
	}
}

func TestParseFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		role string
		args []string
		want Flags
		ok   bool
	}{
		"none":                 {Network, nil, Flags{}, true},
		"version":              {Network, []string{"-v"}, Flags{Version: true}, true},
		"version, IPAM":        {IPAM, []string{"-v"}, Flags{Version: true}, true},
		"connection test":      {Network, []string{"-t"}, Flags{Test: true}, true},
		"connection test IPAM": {IPAM, []string{"-t"}, Flags{}, false},
		"unknown flag":         {Network, []string{"-x"}, Flags{}, false},
		"an argument":          {Network, []string{"add"}, Flags{}, false},
	} {
		got, err := ParseFlags(test.role, test.args)
		if (err == nil) != test.ok || test.ok && got != test.want {
			t.Errorf("%s: flags %+v, %v", name, got, err)
		}
		if err != nil && cnierr.CodeOf(err) != cnierr.Startup {
			t.Errorf("%s: code %d, want %d", name, cnierr.CodeOf(err), cnierr.Startup)
		}
	}
}
