package workload

import (
	"net/netip"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
)

func TestParseArgs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   string
		want Args
	}{
		{"empty", "", Args{}},
		{"kubernetes", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=3f9c",
			Args{PodName: "web-0", PodNamespace: "shop"}},
		{"address and test namespace", "IP=10.77.3.65;CNI_TEST_NAMESPACE=blue", Args{IP: "10.77.3.65", TestNamespace: "blue"}},
		{"Network/5 unknown keys are tolerated", "FOO=bar;K8S_POD_NAME=web-0", Args{PodName: "web-0"}},
		{"keys are case-sensitive", "k8s_pod_name=web-0", Args{}},
		{"empty value", "K8S_POD_NAME=;IP=", Args{}},
		{"last of repeated keys wins", "IP=10.0.0.1;IP=10.0.0.2", Args{IP: "10.0.0.2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseArgs(tt.in)
			if err != nil || got != tt.want {
				t.Errorf("ParseArgs(%q) = %+v, %v, want %+v", tt.in, got, err, tt.want)
			}
		})
	}
}

func TestParseArgsRefusesMalformedPairs(t *testing.T) {
	t.Parallel()
	for in, pair := range map[string]string{
		"FOO":           `"FOO"`,
		"A=1;B":         `"B"`,
		"A=1;B=2=3":     `"B=2=3"`,
		"A=1;":          `""`,
		";":             `""`,
		"IP=10.0.0.1;x": `"x"`,

		"K8S_POD_NAME=a/b":       "K8S_POD_NAME=a/b",
		"K8S_POD_NAMESPACE=../x": "K8S_POD_NAMESPACE=../x",
		"CNI_TEST_NAMESPACE=a/b": "CNI_TEST_NAMESPACE=a/b",
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			_, err := ParseArgs(in)
			wantError(t, err, cnierr.InvalidEnvironment, "CNI_ARGS", pair)
		})
	}
}

func TestArgsAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"10.77.3.65":        "10.77.3.65",
		"FD00:77:1:0::41":   "fd00:77:1::41",
		"::ffff:10.77.3.65": "10.77.3.65",
	} {
		got, ok, err := Args{IP: in}.Address()
		if err != nil || !ok || got.String() != want {
			t.Errorf("Address of IP=%s = %v, %v, %v, want %s", in, got, ok, err, want)
		}
	}
	if _, ok, err := (Args{}).Address(); ok || err != nil {
		t.Errorf("Address without IP= = %v, %v, want none", ok, err)
	}
	for _, in := range []string{"10.0.0.300", "10.0.0.1/32", "fe80::1%eth0", "10.0.0.1,10.0.0.2"} {
		_, _, err := Args{IP: in}.Address()
		wantError(t, err, cnierr.InvalidEnvironment, "IP="+in)
	}
}

func TestDerivedArgs(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("10.77.3.65")
	tests := []struct{ name, got, want string }{
		{"address, empty", AppendIP("", addr), "IP=10.77.3.65"},
		{"address, after others", AppendIP("A=1;IP=10.0.0.1", addr), "A=1;IP=10.0.0.1;IP=10.77.3.65"},
		{"ignore unknown, empty", PrependIgnoreUnknown(""), "IgnoreUnknown=1"},
		{"Network/5 unknown keys reach IPAM", PrependIgnoreUnknown("FOO=bar"), "IgnoreUnknown=1;FOO=bar"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.got != tt.want {
				t.Errorf("got %q, want %q", tt.got, tt.want)
			}
		})
	}
}

func FuzzParseArgs(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0")
	f.Add("A=1;B=2=3;;")
	addr := netip.MustParseAddr("fd00::7")
	f.Fuzz(func(t *testing.T, in string) {
		args, err := ParseArgs(in)
		if err != nil {
			return
		}
		again, err := ParseArgs(AppendIP(PrependIgnoreUnknown(in), addr))
		if err != nil {
			t.Fatalf("adding pairs to %q broke it: %v", in, err)
		}
		args.IP = addr.String()
		if again != args {
			t.Errorf("adding pairs to %q changed it to %+v, want %+v", in, again, args)
		}
	})
}

func wantError(t *testing.T, err error, code cnierr.Code, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if got := cnierr.CodeOf(err); got != code {
		t.Errorf("code %d, want %d: %v", got, code, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not contain %q", err, part)
		}
	}
}
