//go:build kubernetes && linux

package kubernetes

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// dieAt is what the server sees of a caller that is killed at its nth request:
// before the request was acted on, or after that and before the answer. met
// counts the requests.
func dieAt(n int64, done bool) (hook kubetest.Hook, met *atomic.Int64) {
	met = &atomic.Int64{}
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch count := met.Add(1); {
		case count < n:
			next.ServeHTTP(w, r)
			return
		case count == n && done:
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		kubetest.Cut(r)
	}, met
}

// TestCallerDies: an ADD that claims a block, or a DEL, is killed at each of
// its requests. What comes after, ADD and DEL or DEL alone, leaves nothing.
func TestCallerDies(t *testing.T) {
	for _, verb := range []string{"ADD", "DEL"} {
		for _, done := range []bool{false, true} {
			for _, again := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, done %v, again %v", verb, done, again), func(t *testing.T) {
					e := newEnv(t, model.GroupV1)
					for n := int64(1); e.die(verb, n, done, again) && !t.Failed(); n++ {
						continue
					}
				})
			}
		}
	}
}

// die reports whether the verb had an nth request.
func (e *env) die(verb string, n int64, done, again bool) bool {
	e.Helper()
	e.wipe()
	e.ready("10.77.0.0/16")
	store := e.open()
	e.assign(store, "worker-c", "other", 1)
	if verb == "DEL" {
		e.assign(store, "worker-b", "one", 1)
	}
	hook, met := dieAt(n, done)
	e.proxy.Hook(hook)
	dead := e.open()
	if verb == "DEL" {
		_ = allocator(dead).ReleaseByHandle(e.within(time.Minute), "k8s-pod-network.one") // dead callers report nothing
	} else {
		_, _ = assign(e.within(time.Minute), dead, "worker-b", "one", 1) // the same
	}
	e.proxy.Hook(nil)
	if again && verb == "ADD" {
		e.assign(store, "worker-b", "one", 1)
	}
	tries := 1
	if again {
		tries = 2
	}
	for range tries {
		err := allocator(store).ReleaseByHandle(e.within(time.Minute), "k8s-pod-network.one")
		if err != nil && !errors.Is(err, datastore.ErrNotFound) {
			e.Errorf("killed at request %d: DEL: %v", n, err)
		}
	}
	e.consistent(1)
	// The block is still usable by its host.
	e.assign(store, "worker-b", "next", 1)
	e.consistent(2)
	e.unready()
	return met.Load() >= n
}

// TestServerKilled: the server dies while many ADDs run. Those that failed are
// undone and repeated, as a runtime does; nothing is given twice or leaked.
func TestServerKilled(t *testing.T) {
	const pods = 24
	e := newEnv(t, model.GroupV1)
	e.ready("10.77.0.0/24")
	path := kubetest.Kubeconfig(t, cluster.URL, cluster.CAFile, e.token)
	store := e.openAt(path)
	var begun atomic.Int64
	failed := make([]bool, pods)
	half := make(chan struct{})
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() {
			if begun.Add(1) == pods/2 {
				close(half)
			}
			_, err := assign(e.within(10*time.Second), store, "worker-b", fmt.Sprint("c", i), 1)
			failed[i] = err != nil
		})
	}
	<-half
	cluster.Stop()
	all.Wait()
	cluster.Restart(t)
	for i, again := range failed {
		if !again {
			continue
		}
		container := fmt.Sprint("c", i)
		if err := allocator(store).ReleaseByHandle(e.within(time.Minute), "k8s-pod-network."+container); err != nil && !errors.Is(err, datastore.ErrNotFound) {
			t.Error(err)
		}
		e.assign(store, "worker-b", container, 1)
	}
	e.consistent(pods)
}
