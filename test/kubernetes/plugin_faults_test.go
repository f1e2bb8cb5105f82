//go:build kubernetes && linux

package kubernetes

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/plugin"
	"calico-cni/test/kubetest"
)

// stage is a pod on a host, whose verbs meet a fault at each of their requests.
type stage struct {
	*host
	plugin *plugin.Plugin
}

func newStage(t *testing.T, group model.APIGroup) *stage {
	t.Helper()
	h, p := newCluster(newEnv(t, group))
	return &stage{h, p}
}

// clear brings cluster and host back to where no pod was ever connected.
func (s *stage) clear() {
	s.Helper()
	for _, plural := range []string{"ipamblocks", "blockaffinities", "ipamhandles"} {
		cluster.Wipe(s, s.path(plural))
	}
	s.pod()
	clear(s.links.owner)
	if err := os.RemoveAll(filepath.Join(s.dir, "notes")); err != nil {
		s.Fatal(err)
	}
}

// must runs a verb for a container of the pod, which succeeds.
func (s *stage) must(verb invocation.Verb, container string, members ...any) []string {
	s.Helper()
	return s.mustRun(s.plugin, s.call(verb, container, s.policy(members...)))
}

// try runs a verb that may fail.
func (s *stage) try(verb invocation.Verb, container string, members ...any) error {
	s.Helper()
	_, err := s.run(s.plugin, s.call(verb, container, s.policy(members...)))
	return err
}

// fails demands a failure with this code whose text holds all the words.
func (s *stage) failsWith(code cnierr.Code, verb invocation.Verb, container string, words ...string) {
	s.Helper()
	err := s.try(verb, container)
	if cnierr.CodeOf(err) != code {
		s.Errorf("%s: code %d, %v; want code %d", verb, cnierr.CodeOf(err), err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			s.Errorf("%s: the message does not name %q: %v", verb, word, err)
		}
	}
}

// meets runs do with a fault at its nth request of those that count, and reports
// whether there was one.
func (s *stage) meets(n int, f fault, counts func(*http.Request) bool, do func()) bool {
	s.Helper()
	hook, met := atRequest(n, f, counts)
	s.proxy.Hook(hook)
	defer s.proxy.Hook(nil)
	do()
	return met.Load()
}

// eachRequest runs life with n from 1 on until it reports that there is no nth
// request, and demands that there were so many.
func eachRequest(t *testing.T, least, stride int, life func(n int) bool) {
	t.Helper()
	n := 1
	for ; life(n); n += stride {
		if t.Failed() {
			t.Fatalf("the fault was at request %d", n)
		}
	}
	t.Logf("%d requests", n-1)
	if n-1 < least {
		t.Errorf("there were %d requests, want at least %d", n-1, least)
	}
}

// TestPodFaultAtEachRequest: whatever happens to one request, all verbs of both
// plugins end well.
func TestPodFaultAtEachRequest(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, model.GroupV1)
			stride, least, counts := 1, 58, anyRequest
			switch name {
			case "429":
				stride = 7 // each costs the second that the server asks for
			case "500, not done":
				stride = 2 // to a read it is what a cut connection is
			case "cut, done", "500, done":
				least, counts = 13, isWrite // a read that was done is one that was not
			}
			eachRequest(t, least, stride, func(n int) bool {
				s.clear()
				met := s.meets(n, f, counts, func() {
					first := s.must(invocation.Add, "c1")
					s.wantAnnotations(first[0], first[0], "c1")
					s.must(invocation.Status, "")
					s.must(invocation.Del, "c1")
					s.wantAnnotations("", "", "c1")
					s.must(invocation.Add, "c2")
					s.must(invocation.GC, "", "cni.dev/valid-attachments", []any{})
				})
				s.wantAnnotations("", "", "c2")
				s.gone(t)
				return met
			})
		})
	}
}

// TestPodServerDown: every verb says so at once and touches nothing; all is
// well when the server is back.
func TestPodServerDown(t *testing.T) {
	s := newStage(t, model.GroupV1)
	kubetest.WriteKubeconfig(t, s.kubeconfig, cluster.URL, cluster.CAFile, s.token)
	address := s.must(invocation.Add, "c1")[0]
	owners := maps.Clone(s.links.owner)
	cluster.Stop()
	began := time.Now()
	s.failsWith(cnierr.TryAgainLater, invocation.Add, "c2", cluster.URL)
	s.failsWith(cnierr.TryAgainLater, invocation.Del, "c1", cluster.URL) // Network/46
	s.failsWith(cnierr.NotAvailable, invocation.Status, "", cluster.URL) // Network/63
	if err := s.try(invocation.GC, "", "cni.dev/valid-attachments", []any{}); err == nil || !strings.Contains(err.Error(), cluster.URL) {
		t.Errorf("GC: %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("4 verbs took %v to find a server that refuses connections", took)
	}
	if !maps.Equal(owners, s.links.owner) {
		t.Errorf("the host's links were %v, are %v", owners, s.links.owner)
	}
	cluster.Restart(t)
	s.wantAnnotations(address, address, "c1")
	s.consistent(1)
	s.must(invocation.Status, "")
	s.must(invocation.Del, "c1")
	s.gone(t)
}

// TestPodServerHangs: a server that accepts and never answers holds no verb
// beyond its deadline, and no lock after it.
func TestPodServerHangs(t *testing.T) {
	s := newStage(t, model.GroupV1)
	s.must(invocation.Add, "c1")
	owners := maps.Clone(s.links.owner)
	s.proxy.Hook(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() })
	began := time.Now()
	for _, verb := range []invocation.Verb{invocation.Add, invocation.Del, invocation.GC} {
		err := s.try(verb, "c1", "timeout_seconds", 1, "cni.dev/valid-attachments", []any{})
		if cnierr.CodeOf(err) != cnierr.TryAgainLater {
			t.Errorf("%s: code %d, %v", verb, cnierr.CodeOf(err), err)
		}
	}
	s.failsWith(cnierr.NotAvailable, invocation.Status, "") // Network/63, in 2 s
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("3 verbs of 1 s and STATUS took %v", took)
	}
	s.proxy.Hook(nil)
	if !maps.Equal(owners, s.links.owner) {
		t.Errorf("the host's links were %v, are %v", owners, s.links.owner)
	}
	s.must(invocation.Del, "c1")
	s.gone(t)
}

// stale answers from a cache: a GET that was sent before is answered as it was
// then, once.
type stale struct {
	mu      sync.Mutex
	answers map[string]*httptest.ResponseRecorder
	// serving is false while the cache is filled.
	serving bool
	served  int
}

func (c *stale) hook(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.Method != http.MethodGet {
		next.ServeHTTP(w, r)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := c.answers[r.URL.String()]
	if c.serving && answer != nil {
		delete(c.answers, r.URL.String())
		c.served++
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the caller is there
		return
	}
	recorder := httptest.NewRecorder()
	recorder.Body = &bytes.Buffer{}
	next.ServeHTTP(recorder, r)
	if !c.serving && answer == nil {
		c.answers[r.URL.String()] = recorder
	}
	maps.Copy(w.Header(), recorder.Header())
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(recorder.Body.Bytes())
}

// TestStaleReads: the first answers are those of a server whose cache knows
// nothing yet of the pod that was connected before. No address is given twice.
// That the plugins never allow such answers, every test looks at.
func TestStaleReads(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		h, p := newCluster(e)
		s := &stage{h, p}
		cache := &stale{answers: map[string]*httptest.ResponseRecorder{}}
		s.proxy.Hook(cache.hook)
		first := s.must(invocation.Add, "c1")
		cache.serving = true
		second := s.must(invocation.Add, "c2")
		if first[0] == second[0] {
			t.Errorf("%s was given twice", first[0])
		}
		if cache.served < 5 {
			t.Errorf("%d answers were stale", cache.served)
		}
		s.consistent(2)
		s.proxy.Hook(nil)
		s.must(invocation.Del, "c1")
		s.wantAnnotations(second[0], second[0], "c2")
		s.must(invocation.Del, "c2")
		s.gone(t)
	})
}

// TestPodTokenRotated: the token that a verb began with is refused from its nth
// request on, and the kubeconfig holds the next one.
func TestPodTokenRotated(t *testing.T) {
	for _, verb := range []invocation.Verb{invocation.Add, invocation.Del} {
		t.Run(string(verb), func(t *testing.T) {
			s := newStage(t, model.GroupV1)
			eachRequest(t, 9, 1, func(n int) bool {
				s.clear()
				kubetest.WriteKubeconfig(t, s.kubeconfig, s.proxy.URL, s.proxy.CAFile, s.token)
				if verb == invocation.Del {
					s.must(invocation.Add, "c1")
				}
				next := cluster.AccountToken(t, "kube-system", "calico-cni-plugin")
				hook, met := s.rotating(n, next)
				s.proxy.Hook(hook)
				s.must(verb, "c1")
				s.proxy.Hook(nil)
				s.must(invocation.Del, "c1")
				s.gone(t)
				return met.Load()
			})
		})
	}
}

// rotating replaces the token right before the nth request, and refuses the
// old one from then on.
func (s *stage) rotating(n int, next string) (hook kubetest.Hook, met *atomic.Bool) {
	met = &atomic.Bool{}
	var mu sync.Mutex
	count, old := 0, "Bearer "+s.token
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		mu.Lock()
		if count++; count == n {
			fresh := s.kubeconfig + ".new"
			kubetest.WriteKubeconfig(s, fresh, s.proxy.URL, s.proxy.CAFile, next)
			if err := os.Rename(fresh, s.kubeconfig); err != nil {
				s.Error(err)
			}
			met.Store(true)
		}
		refused := met.Load() && r.Header.Get("Authorization") == old
		mu.Unlock()
		if refused {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","message":"Unauthorized","code":401}`)
			return
		}
		forward.ServeHTTP(w, r)
	}, met
}
