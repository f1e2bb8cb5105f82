//go:build kubernetes

package pair

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"calico-cni/test/kubetest"
)

// killing kills a process at its n-th request: before the server sees it, or
// when it is done and not answered yet.
type killing struct {
	mu       sync.Mutex
	seen, at int
	after    bool
	process  *exec.Cmd
	killed   bool
}

func (k *killing) hook(w http.ResponseWriter, r *http.Request, next http.Handler) {
	k.mu.Lock()
	defer k.mu.Unlock()
	mine := k.seen == k.at
	k.seen++
	if k.killed {
		kubetest.Cut(r) // sent together with the one that it died of
	}
	if !mine {
		next.ServeHTTP(w, r)
		return
	}
	if k.after {
		next.ServeHTTP(httptest.NewRecorder(), r)
	}
	k.killed = true
	_ = k.process.Process.Signal(syscall.SIGKILL) // it is there: it waits for this answer
	kubetest.Cut(r)
}

// killAt runs a call that is killed at a request. It reports false if the call
// has no such request, and ends by itself.
func (s *scene) killAt(t *testing.T, proxy *kubetest.Proxy, c call, at int, after bool) bool {
	t.Helper()
	k := &killing{at: at, after: after}
	k.mu.Lock()
	proxy.Hook(k.hook)
	p := s.start(t, c)
	k.process = p.cmd
	k.mu.Unlock()
	err := p.cmd.Wait()
	proxy.Hook(nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.killed && err != nil {
		t.Fatalf("%s fails by itself: %v\n%s", c.verb, err, p.stderr.String())
	}
	return k.killed
}

// TestKubernetesKilled kills ADD and DEL at each of their requests. Then DEL,
// or the verb once more and DEL, or GC leaves nothing.
func TestKubernetesKilled(t *testing.T) {
	c := newKubernetes(t)
	for _, verb := range []string{"ADD", "DEL"} {
		for _, after := range []bool{false, true} {
			for name, then := range map[string]func(*testing.T, *scene, *pod){
				"DEL": func(t *testing.T, s *scene, p *pod) { s.del(t, p, s.c) },
				"the verb again, and DEL": func(t *testing.T, s *scene, p *pod) {
					if o := s.run(t, p.verb(t, verb, s.c)).succeeds(t); verb == "ADD" {
						s.recordOf(t, p, o.result(t))
					}
					s.del(t, p, s.c)
				},
				"GC": func(t *testing.T, s *scene, _ *pod) {
					s.run(t, hostVerb(t, "GC", s.c.gcKey(validKey, attachments()))).succeeds(t)
				},
			} {
				t.Run(fmt.Sprintf("%s, after the request was done %v, then %s", verb, after, name), func(t *testing.T) {
					s, proxy := kubernetesScene(t, c)
					for at := 0; ; at++ {
						p := s.pod(t, fmt.Sprintf("%02d-%s", at, sandboxA))
						if verb == "DEL" {
							s.add(t, p, s.c)
						}
						killed := s.killAt(t, proxy, p.verb(t, verb, s.c), at, after)
						then(t, s, p)
						s.nothingLeft(t)
						if t.Failed() {
							t.Fatalf("killed at request %d", at)
						}
						if !killed {
							t.Logf("%s makes %d requests", verb, at)
							return
						}
					}
				})
			}
		}
	}
}
