//go:build kubernetes && linux

package kubernetes

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"calico-cni/pkg/model"
)

// TestRoutes: nodes have their address from the annotation of Calico's agent,
// else from the kubelet; the plugins' account may ask for one node's routes.
func TestRoutes(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		e.ready("10.77.0.0/16")
		cluster.Admin().Do(t, http.MethodPatch, "/api/v1/nodes/worker-b/status", map[string]any{"status": map[string]any{"addresses": []any{
			map[string]any{"type": "ExternalIP", "address": "203.0.113.12"},
			map[string]any{"type": "InternalIP", "address": "2001:db8::12"},
			map[string]any{"type": "InternalIP", "address": "192.0.2.12"},
		}}})
		e.assign(e.open(), "worker-b", "one", 1)
		block := e.block()
		h := newHost(e)
		ofC := "ip route replace " + block + " via 192.0.2.12\n"
		h.wantRoutes(0, ofC, "", "--node=worker-c")
		h.wantRoutes(0, "", "")
		cluster.Admin().Do(t, http.MethodPatch, "/api/v1/nodes/worker-b", map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{"projectcalico.org/IPv4Address": "198.51.100.12/24"}}})
		ofC = "ip route replace " + block + " via 198.51.100.12\n"
		h.wantRoutes(0, ofC, "", "--node=worker-c")
		// An affinity of an old release has no labels to list it by.
		key := model.AffinityKey{Type: model.AffinityHost, Host: "worker-b", CIDR: netip.MustParsePrefix(block)}
		cluster.Admin().Do(t, http.MethodPatch, e.path("blockaffinities", key.ObjectName()), map[string]any{"metadata": map[string]any{"labels": nil}})
		h.wantRoutes(0, ofC, "", "--node=worker-c")
		cluster.Admin().Do(t, http.MethodDelete, "/api/v1/nodes/worker-b", nil)
		h.wantRoutes(1, "", "no route to "+block+" on node worker-b: the node does not exist", "--node=worker-c")
	})
}

// TestRoutesOfAllNodes needs a right that the plugins do not have.
func TestRoutesOfAllNodes(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.refusals = true
	e.ready("10.77.0.0/16")
	h := newHost(e)
	h.wantRoutes(2, "", "list nodes", "--all")
}

func (h *host) wantRoutes(exit int, stdout, word string, args ...string) {
	h.Helper()
	h.stderr.Reset()
	got, out := h.operate(append([]string{"routes"}, args...)...)
	if told := h.stderr.String(); got != exit || out != stdout || !strings.Contains(told, word) || (word == "") != (told == "") {
		h.Errorf("routes %v: exit %d, want %d; stderr %q, want %q; stdout\n%swant\n%s", args, got, exit, told, word, out, stdout)
	}
}
