package workload

import (
	"strings"
	"testing"
)

func TestAlias(t *testing.T) {
	t.Parallel()
	longID := strings.Repeat("c", 200)
	longNet := strings.Repeat("n", 200)
	tests := []struct {
		name string
		a    Attachment
		want string // empty: only that it fits
	}{
		{"plain", Attachment{"k8s-pod-network", container, "eth0"}, "calico-cni/k8s-pod-network/" + container + "/eth0"},
		{"long but fitting stays", Attachment{"n", longID, "eth0"}, "calico-cni/n/" + longID + "/eth0"},
		{"two long parts are digested", Attachment{longNet, longID, "123456789012345"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			alias := tt.a.Alias()
			if tt.want != "" && alias != tt.want {
				t.Errorf("Alias = %q, want %q", alias, tt.want)
			}
			if len(alias) > aliasMax {
				t.Errorf("alias has %d bytes", len(alias))
			}
			owner, ok := ParseAlias(alias)
			if !ok || !owner.Is(tt.a) || !owner.InNetwork(tt.a.Network) || !owner.HasContainer(tt.a.ContainerID) {
				t.Errorf("alias %q does not name its own attachment", alias)
			}
			other := tt.a
			other.IfName = "eth9"
			if owner.Is(other) {
				t.Errorf("alias %q names another interface", alias)
			}
			other = tt.a
			other.Network = "elsewhere"
			if !owner.Is(other) || owner.InNetwork(other.Network) {
				t.Error("the network counts for InNetwork only")
			}
		})
	}
}

func TestParseAliasRefusesForeignText(t *testing.T) {
	t.Parallel()
	for _, alias := range []string{"", "eth0", "calico-cni/", "calico-cni/a/b", "calico-cni/a/b/c/d", "calico-cni/a//c", "other/a/b/c"} {
		if owner, ok := ParseAlias(alias); ok {
			t.Errorf("ParseAlias(%q) = %v", alias, owner)
		}
	}
}
