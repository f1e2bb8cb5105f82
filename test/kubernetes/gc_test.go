//go:build kubernetes && linux

package kubernetes

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/plugin"
)

// reboot makes so many pods, whose containers are gone when the host starts
// again.
func (h *host) reboot(p *plugin.Plugin, crashed int) {
	h.Helper()
	for i := range crashed {
		cluster.Admin().Do(h, "POST", podPath, map[string]any{
			"metadata": map[string]any{"name": fmt.Sprint("crashed-", i)},
			"spec": map[string]any{"nodeName": "worker-b", "serviceAccountName": "web", "containers": []any{
				map[string]any{"name": "web", "image": "none"},
			}},
		})
		h.Cleanup(func() { h.deleteCrashed(i) })
	}
	h.crash(p, crashed)
}

// crash connects the pods, and nobody disconnects them.
func (h *host) crash(p *plugin.Plugin, crashed int) {
	h.Helper()
	for i := range crashed {
		call := h.call(invocation.Add, fmt.Sprint("gone", i), h.policy())
		call.Args = fmt.Sprint("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=crashed-", i)
		h.mustRun(p, call)
	}
}

func (e *env) deleteCrashed(i int) {
	path := fmt.Sprint(podPath, "/crashed-", i)
	_, err := cluster.Admin().Try("DELETE", path+"?gracePeriodSeconds=0", nil)
	if err != nil && e.object(path) != nil {
		e.Error(err)
	}
}

func (h *host) gc() *invocation.Call {
	return h.call(invocation.GC, "", h.policy("cni.dev/valid-attachments", []any{}))
}

// TestGCCost: GC sends its requests together. A container costs three, those
// that read its pod and its handle and delete that, and one more while its pod
// still names it.
func TestGCCost(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		const crashed = 60
		h, p := newCluster(e)
		h.reboot(p, crashed)
		e.consistent(crashed)
		e.proxy.Latency = latency
		// ready, configuration, affinities of both families, node, pools | block |
		// pods | their records | handles | block | handles
		e.wantCost("GC of pods that are there", 7, 6+1+crashed+crashed+crashed+1+crashed, func() { h.mustRun(p, h.gc()) })
		h.gone(t)
		e.wantCost("GC with nothing to do", 2, 6+1, func() { h.mustRun(p, h.gc()) })
		e.proxy.Latency = 0
		for i := range crashed {
			e.deleteCrashed(i)
		}
		h.reboot(p, crashed)
		for i := range crashed {
			e.deleteCrashed(i)
		}
		e.proxy.Latency = latency
		e.wantCost("GC of pods that are gone", 6, 6+1+crashed+crashed+1+crashed, func() { h.mustRun(p, h.gc()) })
		h.gone(t)
	})
}

// TestGCRefused: the server refuses what is asked for one container. All others
// are done, and once it is allowed so is that one.
func TestGCRefused(t *testing.T) {
	const crashed = 12
	e := newEnv(t, model.GroupV1)
	e.refusals = true
	h, p := newCluster(e)
	for name, refused := range map[string]func(*http.Request) bool{
		"its record": func(r *http.Request) bool {
			return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/crashed-7/")
		},
		"its handle": func(r *http.Request) bool {
			return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, ".gone7")
		},
	} {
		h.reboot(p, crashed)
		var met atomic.Int32
		e.proxy.Hook(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !refused(r) {
				next.ServeHTTP(w, r)
				return
			}
			met.Add(1)
			http.Error(w, `{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"not this one"}`, http.StatusForbidden)
		})
		_, err := h.run(p, h.gc())
		if met.Load() == 0 || err == nil || cnierr.CodeOf(err) != cnierr.DatastoreRefused || !strings.Contains(err.Error(), "7") {
			t.Errorf("%s is refused %d times: code %d, %v", name, met.Load(), cnierr.CodeOf(err), err)
		}
		e.proxy.Hook(nil)
		h.mustRun(p, h.gc())
		h.gone(t)
		for i := range crashed {
			e.deleteCrashed(i)
		}
	}
}

// TestGCDies: a GC that is killed at any of its requests, before the server
// acted on it or after that, is repeated and leaves nothing.
func TestGCDies(t *testing.T) {
	const crashed = 2
	e := newEnv(t, model.GroupV1)
	h, p := newCluster(e)
	h.reboot(p, crashed)
	for _, done := range []bool{false, true} {
		for n := int64(1); !t.Failed(); n++ {
			hook, met := dieAt(n, done)
			e.proxy.Hook(hook)
			_, _ = h.run(p, h.gc()) // the dead report nothing
			e.proxy.Hook(nil)
			h.mustRun(p, h.gc())
			h.gone(t)
			h.crash(p, crashed)
			if met.Load() < n {
				break
			}
		}
	}
	h.mustRun(p, h.gc())
	h.gone(t)
}
