//go:build kubernetes && linux

package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore/kubernetes"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// cluster is the server of all tests.
var cluster *kubetest.Cluster

// manifests are applied as they are.
var manifests = []string{"deploy/crds-v1.yaml", "deploy/crds-v3.yaml", "deploy/rbac.yaml"}

func TestMain(m *testing.M) {
	var failed error
	code := kubetest.Main(m, func(c *kubetest.Cluster) {
		cluster = c
		for _, manifest := range manifests {
			if err := c.Apply(manifest); err != nil && failed == nil {
				failed = err
			}
		}
	})
	if failed != nil {
		fmt.Fprintln(os.Stderr, failed)
		code = 1
	}
	os.Exit(code)
}

// groups runs a test on both groups.
func groups(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	for _, group := range []model.APIGroup{model.GroupV1, model.GroupV3} {
		t.Run(strings.ReplaceAll(string(group), "/", " "), func(t *testing.T) { test(t, newEnv(t, group)) })
	}
}

// env is an empty datastore in one group, and the way to it of a plugin: as
// the account of deploy/, through a proxy.
type env struct {
	*testing.T
	group model.APIGroup
	proxy *kubetest.Proxy
	token string
	// refusals is set by tests that expect to be forbidden something.
	refusals bool
}

func newEnv(t *testing.T, group model.APIGroup) *env {
	t.Helper()
	e := &env{T: t, group: group, proxy: cluster.NewProxy(t)}
	e.token = cluster.AccountToken(t, "kube-system", "calico-cni-plugin")
	e.wipe()
	t.Cleanup(func() {
		for _, exchange := range e.proxy.Exchanges() {
			if exchange.Status == http.StatusForbidden && !e.refusals {
				t.Errorf("the role of deploy/ does not suffice: %s", exchange)
			}
			if strings.Contains(exchange.Query, "resourceVersion") {
				t.Errorf("a cache of the server may answer: %s", exchange)
			}
		}
	})
	return e
}

func (e *env) plurals() []string {
	config := "ipamconfigs"
	if e.group == model.GroupV3 {
		config = "ipamconfigurations"
	}
	return []string{"ipamblocks", "blockaffinities", "ipamhandles", "ippools", "ipreservations", "clusterinformations", config}
}

func (e *env) wipe() {
	e.Helper()
	for _, plural := range e.plurals() {
		cluster.Wipe(e, e.path(plural))
	}
	cluster.Wipe(e, "/api/v1/nodes")
}

// path is the path of a kind, or of an object of it.
func (e *env) path(parts ...string) string {
	return "/apis/" + string(e.group) + "/" + strings.Join(parts, "/")
}

func (e *env) kubeconfig() string {
	return kubetest.Kubeconfig(e, e.proxy.URL, e.proxy.CAFile, e.token)
}

// open returns a store of its own connection.
func (e *env) open(change ...func(*kubernetes.Options)) *kubernetes.Store {
	e.Helper()
	options := kubernetes.Options{Kubeconfig: e.kubeconfig(), Group: e.group}
	for _, c := range change {
		c(&options)
	}
	store, err := kubernetes.Open(e.within(time.Minute), options)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = store.Close() })
	return store
}

// openAt returns a store that goes by another kubeconfig.
func (e *env) openAt(kubeconfig string) *kubernetes.Store {
	e.Helper()
	return e.open(func(o *kubernetes.Options) { o.Kubeconfig = kubeconfig })
}

func (e *env) within(limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(e.Context(), limit)
	e.Cleanup(cancel)
	return ctx
}
