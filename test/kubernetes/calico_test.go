//go:build kubernetes && linux

package kubernetes

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/plugin"
)

// newCluster is a cluster that is ready, with a pool, the pod web-0 and a host.
func newCluster(e *env) (*host, *plugin.Plugin) {
	e.Helper()
	e.ready("10.77.0.0/16")
	e.information(true)
	e.shop()
	e.pod()
	h := newHost(e)
	return h, h.calico()
}

// policy is the configuration with policy from Kubernetes.
func (h *host) policy(members ...any) []byte {
	h.Helper()
	return h.config(append([]any{"policy", map[string]any{"type": "k8s"}}, members...)...)
}

// annotate sets annotations of the pod; nil removes one.
func (e *env) annotate(annotations map[string]any) {
	e.Helper()
	prefixed := map[string]any{}
	for name, value := range annotations {
		prefixed["cni.projectcalico.org/"+name] = value
	}
	cluster.Admin().Do(e, "PATCH", podPath+"/web-0", map[string]any{"metadata": map[string]any{"annotations": prefixed}})
}

// TestPod is the life of a pod whose record is the pod itself.
func TestPod(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		h, p := newCluster(e)
		h.mustRun(p, h.call(invocation.Status, "", h.policy()))
		first := h.mustRun(p, h.call(invocation.Add, "c1", h.policy()))
		e.wantAnnotations(first[0], first[0], "c1")
		e.consistent(1)
		// Network/36: a new sandbox gets a new address, and the old one's late
		// DEL (Network/44) frees only its own.
		second := h.mustRun(p, h.call(invocation.Add, "c2", h.policy()))
		if first[0] == second[0] {
			t.Errorf("both sandboxes have %s", first[0])
		}
		e.wantAnnotations(second[0], second[0], "c2")
		e.consistent(2)
		h.mustRun(p, h.call(invocation.Del, "c1", h.policy()))
		e.wantAnnotations(second[0], second[0], "c2")
		e.consistent(1)
		for range 2 {
			h.mustRun(p, h.call(invocation.Del, "c2", h.policy()))
			e.wantAnnotations("", "", "c2")
		}
		h.gone(t)
		// Network/45: DEL when the pod is gone.
		h.mustRun(p, h.call(invocation.Add, "c3", h.policy()))
		e.deletePod()
		h.mustRun(p, h.call(invocation.Del, "c3", h.policy()))
		h.gone(t)
	})
}

// TestPodWithoutPolicy: no profile can be made where profiles are views.
func TestPodWithoutPolicy(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	h, p := newCluster(e)
	addresses := h.mustRun(p, h.call(invocation.Add, "c1", h.config()))
	e.wantAnnotations(addresses[0], addresses[0], "c1")
	h.mustRun(p, h.call(invocation.Del, "c1", h.config()))
	h.gone(t)
}

// TestPodMissing: nothing is taken for a pod that is not there.
func TestPodMissing(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	h, p := newCluster(e)
	e.deletePod()
	for name, conf := range map[string][]byte{"with policy": h.policy(), "without": h.config()} {
		if _, err := h.run(p, h.call(invocation.Add, "c1", conf)); cnierr.CodeOf(err) != cnierr.TryAgainLater || !strings.Contains(err.Error(), "shop/web-0") {
			t.Errorf("%s: code %d, %v", name, cnierr.CodeOf(err), err)
		}
	}
	other := h.call(invocation.Add, "c1", h.config())
	other.Args = ""
	if _, err := h.run(p, other); cnierr.CodeOf(err) != cnierr.InvalidEnvironment {
		t.Errorf("no pod at all: code %d, %v", cnierr.CodeOf(err), err)
	}
	h.gone(t)
}

// TestPodReplaced: an ADD that is overtaken by the deletion of its pod writes
// to no other pod and keeps nothing.
func TestPodReplaced(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		h, p := newCluster(e)
		for name, during := range map[string]func(){"deleted": e.deletePod, "made anew": e.pod} {
			for _, conf := range [][]byte{h.policy(), h.config()} {
				e.pod()
				h.links.during = during
				_, err := h.run(p, h.call(invocation.Add, "c1", conf))
				if cnierr.CodeOf(err) != cnierr.Overtaken || !strings.Contains(err.Error(), "shop/web-0") {
					t.Errorf("%s: code %d, %v", name, cnierr.CodeOf(err), err)
				}
				if annotations := at(e.object(podPath+"/web-0"), "metadata", "annotations"); annotations != nil {
					t.Errorf("%s: the new pod has the annotations %v", name, annotations)
				}
				h.gone(t)
			}
		}
	})
}

// TestPodAnnotations are the rows whose effect is in the datastore.
func TestPodAnnotations(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	h, p := newCluster(e)
	e.plant("ippools", "IPPool", map[string]any{"name": "other"}, map[string]any{"cidr": "10.78.0.0/24"})
	add := func(id string) string {
		t.Helper()
		return h.mustRun(p, h.call(invocation.Add, id, h.policy()))[0]
	}
	t.Run("Network/18 the pod's pool wins over the namespace's", func(t *testing.T) {
		e.annotate(map[string]any{"ipv4pools": `["other"]`})
		if address := add("c1"); !strings.HasPrefix(address, "10.78.0.") {
			t.Errorf("address %s", address)
		}
	})
	t.Run("Network/25 Network/26 fixed addresses", func(t *testing.T) {
		e.annotate(map[string]any{"ipAddrs": `["10.77.0.9"]`, "ipv4pools": nil})
		for _, id := range []string{"c2", "c3"} {
			if address := add(id); address != "10.77.0.9/32" {
				t.Errorf("address %s", address)
			}
			e.wantAnnotations("10.77.0.9/32", "10.77.0.9/32", id)
		}
	})
	t.Run("Network/23 without IPAM", func(t *testing.T) {
		e.annotate(map[string]any{"ipAddrs": nil, "ipAddrsNoIpam": `["192.0.2.9"]`})
		conf := h.policy("feature_control", map[string]any{"ip_addrs_no_ipam": true})
		h.mustRun(p, h.call(invocation.Add, "c4", conf))
		e.wantAnnotations("192.0.2.9/32", "192.0.2.9/32", "c4")
	})
	t.Run("Network/29 a bad annotation", func(t *testing.T) {
		e.annotate(map[string]any{"ipAddrsNoIpam": nil, "allowedSourcePrefixes": `["x"]`})
		if _, err := h.run(p, h.call(invocation.Add, "c5", h.policy())); cnierr.CodeOf(err) != cnierr.InvalidAnnotation {
			t.Errorf("code %d, %v", cnierr.CodeOf(err), err)
		}
		e.annotate(map[string]any{"allowedSourcePrefixes": nil})
	})
	for _, id := range []string{"c1", "c2", "c3", "c4", "c5"} {
		h.mustRun(p, h.call(invocation.Del, id, h.policy()))
	}
	h.gone(t)
}

// TestPodDelConflicts: somebody else changes the pod between DEL's read and its
// write.
func TestPodDelConflicts(t *testing.T) {
	for name, test := range map[string]struct {
		conflicts int32
		code      cnierr.Code
	}{
		"Network/47 five conflicts": {5, cnierr.Unclassified},
		"Network/47 six conflicts":  {6, cnierr.TryAgainLater},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, model.GroupV1)
			h, p := newCluster(e)
			h.mustRun(p, h.call(invocation.Add, "c1", h.policy()))
			var patches atomic.Int32
			e.proxy.Hook(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if n := patches.Load(); r.Method == http.MethodPatch && n < test.conflicts {
					patches.Add(1)
					_, _ = cluster.Admin().Try("PATCH", podPath+"/web-0", map[string]any{"metadata": map[string]any{"labels": map[string]any{"n": strings.Repeat("x", int(n+1))}}})
				}
				next.ServeHTTP(w, r)
			})
			_, err := h.run(p, h.call(invocation.Del, "c1", h.policy()))
			if test.code == cnierr.Unclassified && err != nil || err != nil && cnierr.CodeOf(err) != test.code || err == nil && test.code != cnierr.Unclassified {
				t.Errorf("code %d, %v", cnierr.CodeOf(err), err)
			}
			e.proxy.Hook(nil)
			h.mustRun(p, h.call(invocation.Del, "c1", h.policy()))
			e.wantAnnotations("", "", "c1")
			h.gone(t)
		})
	}
}
