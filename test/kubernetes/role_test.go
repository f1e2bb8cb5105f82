//go:build kubernetes && linux

package kubernetes

import (
	"errors"
	"net/http"
	"testing"

	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// TestRole: beyond what datastore contract 7 lists the account may do nothing.
// That the list suffices, all other tests show.
func TestRole(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.shop()
	e.pod()
	plugin := cluster.As(t, e.token)
	for _, row := range []struct{ method, path string }{
		{http.MethodGet, "/api/v1/pods"},
		{http.MethodGet, podPath},
		{http.MethodGet, "/api/v1/nodes"},
		{http.MethodGet, "/api/v1/namespaces"},
		{http.MethodGet, "/api/v1/namespaces/shop/secrets"},
		{http.MethodGet, "/api/v1/namespaces/shop/configmaps/a"},
		{http.MethodPost, podPath},
		{http.MethodDelete, podPath + "/web-0"},
		{http.MethodPatch, podPath + "/web-0"},
		{http.MethodPatch, "/api/v1/nodes/worker-b/status"},
		{http.MethodGet, e.path("ipamblocks") + "?watch=true"},
		{http.MethodPatch, e.path("ipamblocks", "10-77-0-0-26")},
		{http.MethodDelete, e.path("ipamblocks")},
		{http.MethodGet, "/apis/rbac.authorization.k8s.io/v1/clusterroles"},
		{http.MethodGet, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"},
	} {
		var body any
		if row.method == http.MethodPost || row.method == http.MethodPatch {
			body = map[string]any{"metadata": map[string]any{"name": "a"}}
		}
		_, err := plugin.Try(row.method, row.path, body)
		var answer *kubetest.AnswerError
		if !errors.As(err, &answer) || answer.Status != http.StatusForbidden {
			t.Errorf("%s %s: %v, want it forbidden", row.method, row.path, err)
		}
	}
}
