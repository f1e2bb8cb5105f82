//go:build kubernetes && linux

package kubernetes

import (
	"path/filepath"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/model"
)

// TestUsePodCIDR: where pods have addresses of their node's podCIDR, no verb of
// either plugin asks for IPAM objects.
func TestUsePodCIDR(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	h, network := newCluster(e)
	environment := h.environment()
	environment.Getenv = func(name string) string { return map[string]string{"USE_POD_CIDR": "true"}[name] }
	environment.Open = connect.Open(environment.Getenv)
	network.Environment = environment
	addresses := &ipamplugin.Plugin{Environment: environment, NotesDirectory: filepath.Join(h.dir, "notes")}
	e.proxy.Forget()
	for name, plugin := range map[string]invocation.Plugin{"calico": network, "calico-ipam": addresses} {
		for _, verb := range []invocation.Verb{invocation.Add, invocation.Check, invocation.Del, invocation.Status, invocation.GC} {
			_, err := h.run(plugin, h.call(verb, "c1", h.policy("cni.dev/valid-attachments", []any{}, "prevResult", previous)))
			if cnierr.CodeOf(err) != cnierr.InvalidConfiguration || !strings.Contains(err.Error(), "operation not supported") || !strings.Contains(err.Error(), "USE_POD_CIDR") {
				t.Errorf("%s %s: code %d, %v", name, verb, cnierr.CodeOf(err), err)
			}
		}
	}
	if exchanges := e.proxy.Exchanges(); len(exchanges) != 0 {
		t.Errorf("the server was asked: %v", exchanges)
	}
}

// previous is an ADD's result.
var previous = map[string]any{
	"cniVersion": "1.1.0", "interfaces": []any{map[string]any{"name": "eth0", "sandbox": "/ns/c1"}},
	"ips": []any{map[string]any{"interface": 0, "address": "10.77.0.1/32"}},
}
