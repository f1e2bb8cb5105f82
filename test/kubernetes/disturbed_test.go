//go:build kubernetes && linux

package kubernetes

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

// before is a fault that does something first, and lets the request through.
func before(happens func()) fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		happens()
		next.ServeHTTP(w, r)
	}
}

// TestPodGoesDuringAdd: the pod is deleted, or made anew under its name, before
// each request of ADD.
func TestPodGoesDuringAdd(t *testing.T) {
	for name, happens := range map[string]func(*stage){
		"deleted": func(s *stage) { s.deletePod() }, "made anew": func(s *stage) { s.pod() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, model.GroupV1)
			eachRequest(t, 16, 1, func(n int) bool {
				s.clear()
				uid := at(s.object(podPath+"/web-0"), "metadata", "uid")
				var err error
				met := s.meets(n, before(func() { happens(s) }), anyRequest, func() { err = s.try(invocation.Add, "c1") })
				s.wantOvertaken(err, uid, met)
				s.must(invocation.Del, "c1")
				s.gone(t)
				return met
			})
		})
	}
}

// wantOvertaken: an ADD whose pod went either said so and left nothing, or was
// done with the pod, or connected the pod that was there when it looked.
func (s *stage) wantOvertaken(err error, uid any, met bool) {
	s.Helper()
	code := cnierr.CodeOf(err)
	switch {
	case err == nil && !met:
	case err == nil:
		now := s.object(podPath + "/web-0")
		if now != nil && at(now, "metadata", "uid") != uid && at(now, "metadata", "annotations", model.AnnotationPodIP) == nil {
			s.Error("ADD says that it connected a pod, but that pod has no record of it")
		}
	case code != cnierr.Overtaken && code != cnierr.TryAgainLater || !strings.Contains(err.Error(), "shop/web-0"):
		s.Errorf("code %d, %v", code, err)
	default:
		s.gone(s.T)
		if annotations := at(s.object(podPath+"/web-0"), "metadata", "annotations"); annotations != nil {
			s.Errorf("the new pod has the annotations %v", annotations)
		}
	}
}

// TestPodSuccessorDuringDel: before each request of a DEL its pod is made anew,
// and the new one is connected. DEL is late then, and must not notice.
func TestPodSuccessorDuringDel(t *testing.T) {
	s := newStage(t, model.GroupV1)
	// It does not wait for the lock that DEL holds: the server must suffice.
	other := newHost(s.env)
	other.links = s.links
	successor := other.calico()
	eachRequest(t, 9, 1, func(n int) bool {
		s.clear()
		s.must(invocation.Add, "c1")
		var address []string
		connect := func() {
			s.pod()
			address = other.mustRun(successor, other.call(invocation.Add, "c2", other.policy()))
		}
		met := s.meets(n, before(connect), anyRequest, func() { s.must(invocation.Del, "c1") })
		if !met {
			connect()
		}
		s.must(invocation.Del, "c1")
		s.wantAnnotations(address[0], address[0], "c2")
		s.consistent(1)
		s.must(invocation.Del, "c2")
		s.gone(t)
		return met
	})
}

// TestPodPoolGoesDuringAdd: the pool is deleted, or only marked because of its
// finalizer, before each request of ADD. What was taken can be given back.
func TestPodPoolGoesDuringAdd(t *testing.T) {
	for name, unmark := range map[string]bool{"deleted": true, "marked": false} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, model.GroupV1)
			pool := s.path("ippools", "pods")
			admin := cluster.Admin()
			eachRequest(t, 16, 1, func(n int) bool {
				s.clear()
				met := s.meets(n, before(func() {
					if unmark {
						admin.Do(t, "PATCH", pool, map[string]any{"metadata": map[string]any{"finalizers": nil}})
					}
					admin.Do(t, "DELETE", pool, nil)
				}), anyRequest, func() {
					if err := s.try(invocation.Add, "c1"); err != nil && !slices.Contains(poolGone, cnierr.CodeOf(err)) {
						t.Errorf("code %d, %v", cnierr.CodeOf(err), err)
					}
				})
				s.must(invocation.Del, "c1")
				s.gone(t)
				if met {
					s.poolAgain()
				}
				return met
			})
		})
	}
}

// poolGone are the codes of an ADD that lost its pool.
var poolGone = []cnierr.Code{cnierr.NoPool, cnierr.AddressesExhausted, cnierr.InvalidConfiguration, cnierr.InvalidAnnotation}

// poolAgain makes the pool that was deleted.
func (s *stage) poolAgain() {
	s.Helper()
	if s.object(s.path("ippools", "pods")) != nil {
		s.unready()
	}
	s.plant("ippools", "IPPool", map[string]any{"name": "pods", "finalizers": []string{"projectcalico.org/ippool-finalizer"}},
		map[string]any{"cidr": "10.77.0.0/16"})
}

// TestPodNodeMissing: ADD fails with a code of its own, DEL and GC do not fail.
func TestPodNodeMissing(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		h, p := newCluster(e)
		s := &stage{h, p}
		s.must(invocation.Add, "c1")
		cluster.Admin().Do(t, "DELETE", "/api/v1/nodes/worker-b", nil)
		s.failsWith(cnierr.NodeUnknown, invocation.Add, "c2", "worker-b")
		s.consistent(1)
		s.must(invocation.Del, "c1")
		s.gone(t)
		cluster.Admin().Do(t, "POST", "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": "worker-b"}})
		s.must(invocation.Add, "c3")
		cluster.Admin().Do(t, "DELETE", "/api/v1/nodes/worker-b", nil)
		s.must(invocation.GC, "", "cni.dev/valid-attachments", []any{})
		s.gone(t)
	})
}

// TestPodNodeRelabelled: the pools select nodes, and the node's labels change
// while it has pods.
func TestPodNodeRelabelled(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		h, p := newCluster(e)
		cluster.Admin().Do(t, "PATCH", e.path("ippools", "pods"), map[string]any{"spec": map[string]any{"disabled": true}})
		for zone, cidr := range map[string]string{"a": "10.80.0.0/24", "b": "10.81.0.0/24"} {
			e.plant("ippools", "IPPool", map[string]any{"name": "zone-" + zone}, map[string]any{"cidr": cidr, "nodeSelector": "zone == '" + zone + "'"})
		}
		add := func(id string) *invocation.Call { return h.call(invocation.Add, id, h.config()) }
		del := func(id string) { h.mustRun(p, h.call(invocation.Del, id, h.config())) }
		refused := func(id string) {
			t.Helper()
			if _, err := h.run(p, add(id)); err == nil || cnierr.CodeOf(err) != cnierr.NoPool || !strings.Contains(err.Error(), "zone-a") {
				t.Errorf("code %d, %v", cnierr.CodeOf(err), err)
			}
		}
		refused("c0")
		e.zone("a")
		first := h.mustRun(p, add("c1"))
		e.zone("b")
		second := h.mustRun(p, add("c2"))
		if !strings.HasPrefix(first[0], "10.80.0.") || !strings.HasPrefix(second[0], "10.81.0.") {
			t.Errorf("addresses %v of zone a and %v of zone b", first, second)
		}
		e.consistent(2)
		del("c1")
		// The empty block of a pool that does not select the node is given back.
		if block := e.block(); !strings.HasPrefix(block, "10.81.0.") {
			t.Errorf("the host has the block %s, want that of zone b", block)
		}
		e.zone("c")
		refused("c3")
		del("c2")
		h.gone(t)
	})
}

// zone labels the node.
func (e *env) zone(name string) {
	e.Helper()
	cluster.Admin().Do(e, "PATCH", "/api/v1/nodes/worker-b", map[string]any{"metadata": map[string]any{"labels": map[string]any{"zone": name}}})
}
