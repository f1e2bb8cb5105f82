//go:build kubernetes && linux

package kubernetes

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// TestMachineCallerDies: an ADD of a machine's first pod, of its next one, or a
// DEL at its end is killed before or after each of its writes. ADD and DEL, DEL
// alone, or GC and DEL afterwards leave nothing, and never two addresses.
func TestMachineCallerDies(t *testing.T) {
	for _, row := range []struct {
		dying string
		then  []string
	}{
		{"first ADD", []string{"ADD", "DEL", "GC"}},
		{"next ADD", []string{"ADD", "DEL", "GC"}},
		{"DEL", []string{"DEL"}},
	} {
		for _, done := range []bool{false, true} {
			for _, then := range row.then {
				t.Run(fmt.Sprintf("%s, done %v, then %s", row.dying, done, then), func(t *testing.T) {
					e := newEnv(t, model.GroupV1)
					h := kubeVirt(e)
					for n := int64(1); h.machineDies(row.dying, n, done, then) && !t.Failed(); n++ {
						continue
					}
				})
			}
		}
	}
}

// dieAtWrite is dieAt for the nth request that changes something. Between two
// of them it does not matter when a caller dies.
func dieAtWrite(n int64, done bool) (hook kubetest.Hook, met *atomic.Int64) {
	die, met := dieAt(n, done)
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet && met.Load() < n {
			next.ServeHTTP(w, r)
			return
		}
		die(w, r, next)
	}, met
}

// machineDies reports whether the verb had an nth write.
func (h *host) machineDies(dying string, n int64, done bool, then string) bool {
	h.Helper()
	p := h.calico()
	h.machine()
	if dying != "first ADD" {
		h.connect(p, launcher, "c0")
		h.consistent(1)
	}
	call := h.inPod(invocation.Add, launcher, "c1")
	if dying == "DEL" {
		h.end()
		call = h.inPod(invocation.Del, launcher, "c0")
	}
	hook, met := dieAtWrite(n, done)
	h.proxy.Hook(hook)
	_, _ = h.run(p, call) // dead callers report nothing
	h.proxy.Hook(nil)
	switch {
	case dying == "DEL":
	case then == "ADD":
		addresses, routes := h.connect(p, launcher, "c1")
		if len(addresses) != 1 || routes != 1 {
			h.Errorf("killed at write %d: addresses %v, %d routes", n, addresses, routes)
		}
		h.wantOwners(launcher, "")
	case then == "GC":
		h.mustRun(p, h.inPod(invocation.GC, launcher, "", "cni.dev/valid-attachments", []any{}))
		if dying == "next ADD" {
			h.consistent(1)
		}
	}
	if dying != "DEL" {
		h.end()
	}
	for _, container := range []string{"c0", "c1"} {
		h.disconnect(p, launcher, container)
	}
	h.gone(h.T)
	return met.Load() >= n
}
