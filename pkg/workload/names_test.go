package workload

import (
	"testing"

	"calico-cni/pkg/cnierr"
)

func TestInterfacePrefix(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":              "cali",
		"cali":          "cali",
		"foo,bar":       "foo",
		" foo , bar":    "foo",
		",bar":          "cali",
		"eni,toolong99": "eni",
	} {
		t.Run("Network/16 FELIX_INTERFACEPREFIX="+in, func(t *testing.T) {
			t.Parallel()
			if got, err := InterfacePrefix(in); err != nil || got != want {
				t.Errorf("InterfacePrefix(%q) = %q, %v, want %q", in, got, err, want)
			}
		})
	}
	for _, in := range []string{"calico", "a/b", "a b,c"} {
		t.Run("refused "+in, func(t *testing.T) {
			t.Parallel()
			_, err := InterfacePrefix(in)
			wantError(t, err, cnierr.InvalidEnvironment, "FELIX_INTERFACEPREFIX")
		})
	}
}

func TestValidateContainerID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "0", container, "A_b.c-d"} {
		if err := ValidateContainerID(id); err != nil {
			t.Errorf("%q refused: %v", id, err)
		}
	}
	for id, rule := range map[string]string{
		"":      "must not be empty",
		"-a":    "must begin with a letter or a digit",
		".a":    "must begin with a letter or a digit",
		"a/b":   "only letters",
		"a b":   "only letters",
		"a\n":   "only letters",
		"käse":  "only letters",
		"a;b=c": "only letters",
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			wantError(t, ValidateContainerID(id), cnierr.InvalidEnvironment, "CNI_CONTAINERID", rule)
		})
	}
}

func TestValidateIfName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"eth0", "a", "123456789012345", "-x", "net-1", "..."} {
		if err := ValidateIfName(name); err != nil {
			t.Errorf("%q refused: %v", name, err)
		}
	}
	for name, rule := range map[string]string{
		"":                 "must not be empty",
		"1234567890123456": "at most 15",
		".":                `"." or ".."`,
		"..":               `"." or ".."`,
		"a/b":              `"/"`,
		"a:1":              `":"`,
		"a b":              "white space",
		"a\t":              "white space",
		"a\u00a0b":         "white space",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantError(t, ValidateIfName(name), cnierr.InvalidEnvironment, "CNI_IFNAME", rule)
		})
	}
}

func TestValidateNetworkName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"k8s-pod-network", "Calico", "a.b", "0"} {
		if err := ValidateNetworkName(name); err != nil {
			t.Errorf("%q refused: %v", name, err)
		}
	}
	for _, name := range []string{"", "a b", "-a", "_a", "a/b", "a:b"} {
		t.Run("Network/4 refused "+name, func(t *testing.T) {
			t.Parallel()
			wantError(t, ValidateNetworkName(name), cnierr.InvalidConfiguration, "key name", `"`+name+`"`)
		})
	}
}
