//go:build kubernetes && linux

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// A fault happens to one request of a verb.
type fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

func cutBefore(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body) // it has arrived, but is not acted on
	kubetest.Cut(r)
}

func cutAfter(_ http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	kubetest.Cut(r)
}

func brokenBefore(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	http.Error(w, "{}", http.StatusInternalServerError)
}

func brokenAfter(w http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	http.Error(w, "{}", http.StatusInternalServerError)
}

func tooMany(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "{}", http.StatusTooManyRequests)
}

var faults = map[string]fault{
	"cut, not done": cutBefore, "cut, done": cutAfter, "500, not done": brokenBefore, "500, done": brokenAfter, "429": tooMany,
}

func anyRequest(*http.Request) bool { return true }

func isWrite(r *http.Request) bool { return r.Method != http.MethodGet }

// atRequest lets a fault happen to the nth request of those that count.
func atRequest(n int, f fault, counts func(*http.Request) bool) (hook kubetest.Hook, met *atomic.Bool) {
	var count atomic.Int64
	met = &atomic.Bool{}
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if counts(r) && count.Add(1) == int64(n) {
			met.Store(true)
			f(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}, met
}

func (e *env) unready() {
	e.Helper()
	cluster.Admin().Do(e, "PATCH", e.path("ippools", "pods"), map[string]any{"metadata": map[string]any{"finalizers": nil}})
}

// TestConflictStorm: somebody else changes every block before we do, again and
// again.
func TestConflictStorm(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		e.ready("10.77.0.0/16")
		store := e.open()
		e.assign(store, "worker-b", "one", 1)
		var storms atomic.Int64
		e.proxy.Hook(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/ipamblocks/") && storms.Add(1) <= 10 {
				cluster.Admin().Do(e, "PATCH", r.URL.Path, map[string]any{"metadata": map[string]any{"annotations": map[string]string{"example.org/storm": fmt.Sprint(storms.Load())}}})
			}
			next.ServeHTTP(w, r)
		})
		e.assign(store, "worker-b", "two", 1)
		storms.Store(0)
		e.release(store, "one")
		e.consistent(1)
		if note := at(e.object(e.path("ipamblocks", "10-77-194-0-26")), "metadata", "annotations", "example.org/storm"); note != "10" {
			t.Errorf("the other writer's note is now %v", note)
		}
	})
}

// TestServerDown: refused at once, by the name of the server; it works again
// on the same store when the server is back.
func TestServerDown(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.ready("10.77.0.0/16")
	path := kubetest.Kubeconfig(t, cluster.URL, cluster.CAFile, e.token)
	store := e.openAt(path)
	e.assign(store, "worker-b", "one", 1)
	cluster.Stop()
	_, err := assign(e.within(20*time.Second), store, "worker-b", "two", 1)
	if !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), cluster.URL) {
		t.Errorf("failed with %v", err)
	}
	cluster.Restart(t)
	e.assign(store, "worker-b", "two", 1)
	e.consistent(2)
}

// TestServerHangs: a server that accepts and never answers holds no verb
// beyond its deadline.
func TestServerHangs(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.ready("10.77.0.0/16")
	e.proxy.Hook(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() })
	began := time.Now()
	_, err := assign(e.within(500*time.Millisecond), e.open(), "worker-b", "one", 1)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 3*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func TestSlowServer(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.ready("10.77.0.0/16")
	e.proxy.Latency = 400 * time.Millisecond
	began := time.Now()
	e.assign(e.open(), "worker-b", "one", 1)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("5 rounds of 0.4 s took %v", took)
	}
	e.consistent(1)
}

// TestNarrowRole: the error names verb and resource.
func TestNarrowRole(t *testing.T) {
	e := newEnv(t, model.GroupV3)
	e.refusals = true
	_, err := cluster.Admin().Try("POST", "/api/v1/namespaces/kube-system/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "nobody"}})
	if err != nil && e.object("/api/v1/namespaces/kube-system/serviceaccounts/nobody") == nil {
		t.Fatal(err)
	}
	e.token = cluster.AccountToken(t, "kube-system", "nobody")
	store := e.open()
	_, err = store.Read(e.within(time.Minute), datastore.Get{Key: blockKey("10.77.0.0/26")})
	if datastore.ReasonOf(err) != datastore.Refused || !strings.Contains(err.Error(), "get ipamblocks.projectcalico.org") {
		t.Errorf("failed with %v", err)
	}
	_, err = store.Write(e.within(time.Minute), datastore.Step{datastore.Put(model.HandleKey{ID: "net.a"}, &model.Handle{}, datastore.Absent)})
	if datastore.ReasonOf(err) != datastore.Refused || !strings.Contains(err.Error(), "create ipamhandles.projectcalico.org") {
		t.Errorf("failed with %v", err)
	}
}

// TestRotatedToken: the kubeconfig is replaced between two requests of a verb.
func TestRotatedToken(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.ready("10.77.0.0/16")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubetest.WriteKubeconfig(t, path, e.proxy.URL, e.proxy.CAFile, "revoked")
	store := e.openAt(path)
	if _, err := assign(e.within(time.Minute), store, "worker-b", "one", 1); datastore.ReasonOf(err) != datastore.Refused || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "revoked") {
		t.Errorf("failed with %v", err)
	}
	kubetest.WriteKubeconfig(t, path+".new", e.proxy.URL, e.proxy.CAFile, e.token)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	e.assign(store, "worker-b", "one", 1)
	e.consistent(1)
}

// TestMissingDefinition: a kind that is not defined is no absent object.
func TestMissingDefinition(t *testing.T) {
	e := newEnv(t, model.GroupV3)
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipreservations.projectcalico.org"
	cluster.Admin().Do(t, "DELETE", definition, nil)
	t.Cleanup(func() {
		for e.object(definition) != nil { // its objects are being deleted
			continue
		}
		if err := cluster.Apply("deploy/crds-v3.yaml"); err != nil {
			t.Error(err)
		}
	})
	store := e.open()
	for _, query := range []datastore.Query{
		datastore.ListResources{Kind: model.KindIPReservation}, datastore.Get{Key: model.ResourceKey{Kind: model.KindIPReservation, Name: "gw"}},
	} {
		var err error
		for deadline := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(deadline); { // the server stops serving it in its own time
			_, err = store.Read(e.within(time.Minute), query)
		}
		if !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), "ipreservations.projectcalico.org") {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// TestPoolDeletedMeanwhile: its addresses can still be released.
func TestPoolDeletedMeanwhile(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		e.ready("10.77.0.0/16")
		store := e.open()
		e.assign(store, "worker-b", "one", 1)
		cluster.Admin().Do(t, "DELETE", e.path("ippools", "pods"), nil)
		if _, err := allocator(store).Assign(e.within(time.Minute), request("worker-b", "two", 1)); err == nil {
			t.Error("an address of a pool that is being deleted")
		}
		e.release(store, "one")
		e.consistent(0)
	})
}

// TestMissingNode: ADD fails, DEL does not.
func TestMissingNode(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.ready("10.77.0.0/16")
	store := e.open()
	e.assign(store, "worker-b", "one", 1)
	cluster.Admin().Do(t, "DELETE", "/api/v1/nodes/worker-b", nil)
	if _, err := ipam.New(store, ipam.Options{}).Assign(e.within(time.Minute), request("worker-b", "two", 1)); err == nil {
		t.Error("an address for a node that does not exist")
	}
	e.release(store, "one")
	e.consistent(0)
}
