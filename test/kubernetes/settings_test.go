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

// TestRates: the client's own limits, of the configuration and of the
// environment, hold for a verb; the usual ones are no hindrance.
func TestRates(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	h, p := newCluster(e)
	h.mustRun(p, h.call(invocation.Add, "c0", h.policy()))
	narrow := h.policy("qps", 1, "burst", 3, "timeout_seconds", 1)
	for name, test := range map[string]struct {
		conf []byte
		env  map[string]string
	}{
		"of the configuration":     {narrow, nil},
		"that win":                 {narrow, map[string]string{"K8S_CLIENT_QPS": "100", "K8S_CLIENT_BURST": "100"}},
		"of the environment":       {h.policy("timeout_seconds", 1), map[string]string{"K8S_CLIENT_QPS": "0.5", "CALICO_K8S_CLIENT_BURST": "3"}},
		"of a rate that is enough": {h.policy("qps", 1, "burst", 13), nil},
	} {
		plugin := *p
		plugin.Getenv = func(name string) string { return test.env[name] }
		plugin.Open = connect.Open(plugin.Getenv)
		e.proxy.Forget()
		_, err := h.run(&plugin, h.call(invocation.Add, "c1", test.conf))
		if name == "of a rate that is enough" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if cnierr.CodeOf(err) != cnierr.TryAgainLater || !strings.Contains(err.Error(), "raise qps and burst") {
			t.Errorf("%s: code %d, %v", name, cnierr.CodeOf(err), err)
		}
		if sent := len(e.proxy.Exchanges()); sent > 3 {
			t.Errorf("%s: %d requests were sent", name, sent)
		}
	}
	h.mustRun(p, h.call(invocation.Del, "c1", h.policy()))
	e.consistent(1)
}
