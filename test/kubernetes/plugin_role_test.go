//go:build kubernetes && linux

package kubernetes

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"

// TestPodNarrowRole: the role of deploy/ without one of its rights. The error
// names verb and resource, and nothing is left.
func TestPodNarrowRole(t *testing.T) {
	for _, lack := range []struct {
		group, resource, verb string
		fails                 invocation.Verb
	}{
		{"", "pods", "get", invocation.Add},
		{"", "namespaces", "get", invocation.Add},
		{"", "nodes", "get", invocation.Add},
		{"", "pods/status", "patch", invocation.Add},
		{"crd.projectcalico.org", "clusterinformations", "get", invocation.Add},
		{"crd.projectcalico.org", "ippools", "list", invocation.Add},
		{"crd.projectcalico.org", "blockaffinities", "create", invocation.Add},
		{"crd.projectcalico.org", "ipamblocks", "create", invocation.Add},
		{"crd.projectcalico.org", "ipamhandles", "create", invocation.Add},
		{"", "pods/status", "patch", invocation.Del},
		{"crd.projectcalico.org", "ipamblocks", "update", invocation.Del},
		{"crd.projectcalico.org", "ipamhandles", "delete", invocation.Del},
	} {
		t.Run(fmt.Sprintf("%s without %s %s", lack.fails, lack.verb, lack.resource), func(t *testing.T) {
			s := newStage(t, model.GroupV1)
			s.refusals = true
			if lack.fails == invocation.Del {
				s.must(invocation.Add, "c1")
			}
			narrow := s.narrowAccount(lack.group, lack.resource, lack.verb)
			kubetest.WriteKubeconfig(t, s.kubeconfig, s.proxy.URL, s.proxy.CAFile, narrow)
			resource := lack.resource
			if lack.group != "" {
				resource += "." + lack.group
			}
			s.failsWith(cnierr.DatastoreRefused, lack.fails, "c1", lack.verb+" "+resource)
			kubetest.WriteKubeconfig(t, s.kubeconfig, s.proxy.URL, s.proxy.CAFile, s.token)
			if lack.fails == invocation.Del {
				s.must(invocation.Del, "c1")
			}
			s.gone(t)
		})
	}
}

// narrowAccount makes an account with the rights of deploy/ but one, and
// returns its token when the server knows of them.
func (s *stage) narrowAccount(group, resource, verb string) string {
	s.Helper()
	rules, _ := s.object(roles + "/calico-cni")["rules"].([]any)
	name := strings.ReplaceAll(fmt.Sprintf("narrow-%s-%s", verb, resource), "/", "-")
	admin := cluster.Admin()
	const accounts, bindings = "/api/v1/namespaces/kube-system/serviceaccounts", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	admin.Do(s, "POST", accounts, map[string]any{"metadata": map[string]any{"name": name}})
	admin.Do(s, "POST", roles, map[string]any{"metadata": map[string]any{"name": name}, "rules": without(rules, group, resource, verb)})
	admin.Do(s, "POST", bindings, map[string]any{
		"metadata": map[string]any{"name": name},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}},
	})
	s.Cleanup(func() {
		for _, path := range []string{accounts, roles, bindings} {
			admin.Do(s, "DELETE", path+"/"+name, nil)
		}
	})
	token := cluster.AccountToken(s, "kube-system", name)
	s.knows(cluster.As(s, token))
	return token
}

// knows waits until the server knows of the account's role: each right that the
// role may lack, but not all of them.
func (s *stage) knows(client *kubetest.Client) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		for _, path := range []string{s.path("ipreservations"), podPath + "/web-0"} {
			_, err := client.Try("GET", path, nil)
			var answer *kubetest.AnswerError
			if err == nil || errors.As(err, &answer) && answer.Status == http.StatusNotFound {
				return
			}
			if time.Now().After(deadline) {
				s.Fatal(err)
			}
		}
	}
}

// without takes one right out of rules.
func without(rules []any, group, resource, verb string) []any {
	var narrowed []any
	for _, rule := range rules {
		r := rule.(map[string]any)
		for _, g := range r["apiGroups"].([]any) {
			for _, one := range r["resources"].([]any) {
				var verbs []any
				for _, v := range r["verbs"].([]any) {
					if g != group || one != resource || v != verb {
						verbs = append(verbs, v)
					}
				}
				if len(verbs) > 0 {
					narrowed = append(narrowed, map[string]any{"apiGroups": []any{g}, "resources": []any{one}, "verbs": verbs})
				}
			}
		}
	}
	return narrowed
}
