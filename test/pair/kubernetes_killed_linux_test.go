//go:build kubernetes

package pair

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
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

// victim is a verb that is killed at each of its requests.
type victim struct {
	verb string
	// points is how many requests it has at least, each of which is a point at
	// which it may be killed. A test that finds fewer proves less than it did.
	points int
	// claims: the host owns no block before.
	claims bool
}

var victims = map[string]victim{
	"ADD":             {verb: "ADD", points: 16},
	"ADD that claims": {verb: "ADD", points: 26, claims: true},
	"DEL":             {verb: "DEL", points: 11},
	"GC":              {verb: "GC", points: 14},
}

// then is what the runtime does after the death of the verb.
var then = map[string]func(*testing.T, *killScene, *pod, call){
	"DEL": func(t *testing.T, s *killScene, p *pod, _ call) { s.del(t, p, s.c) },
	"the verb again, and DEL": func(t *testing.T, s *killScene, p *pod, again call) {
		if o := s.run(t, again).succeeds(t); again.verb == "ADD" {
			s.connected(t, p, o.result(t))
		}
		s.del(t, p, s.c)
	},
	"GC": func(t *testing.T, s *killScene, _ *pod, _ call) { s.run(t, s.gc(t)).succeeds(t) },
}

// killScene is a scene with another pod on the host that must not notice
// anything; without one if the verb is to claim a block.
type killScene struct {
	*scene
	cluster *kubetest.Cluster
	proxy   *kubetest.Proxy
	keeper  *pod
	kept    result
}

func newKillScene(t *testing.T, c *kubetest.Cluster, v victim) *killScene {
	t.Helper()
	s := &killScene{cluster: c}
	s.scene, s.proxy = kubernetesScene(t, c)
	if !v.claims {
		s.keeper = newPod(t, "keeper", strings.Replace(s.args, "web-0", "web-1", 1))
		s.kept = s.add(t, s.keeper, s.c)
	}
	return s
}

// gc says that the keeper is all that is left.
func (s *killScene) gc(t *testing.T) call {
	t.Helper()
	valid := attachments()
	if s.keeper != nil {
		valid = attachments(s.keeper.container, s.keeper.ifName)
	}
	return hostVerb(t, "GC", s.c.gcKey(validKey, valid))
}

// TestKubernetesKilled kills ADD, DEL and GC at each of their requests. Then
// DEL, or the verb once more and DEL, or GC leaves nothing, and no address is
// given twice.
func TestKubernetesKilled(t *testing.T) {
	c := newKubernetes(t)
	points := 0
	for name, v := range victims {
		for _, after := range []bool{false, true} {
			for what, then := range then {
				t.Run(fmt.Sprintf("%s, after the request was done %v, then %s", name, after, what), func(t *testing.T) {
					s := newKillScene(t, c, v)
					at := 0
					for s.kill(t, v, at, after, then) {
						at++
					}
					if at < v.points {
						t.Errorf("%s has only %d requests to be killed at, want at least %d", name, at, v.points)
					}
					t.Logf("%s makes %d requests", name, at)
					points += at
				})
			}
		}
	}
	measured("SIGKILL at %d points: before and after each request of ADD, ADD that claims a block, DEL and GC, with 3 continuations", points)
}

// kill kills a verb at a request and has the runtime continue. It reports false
// if there is no such request.
func (s *killScene) kill(t *testing.T, v victim, at int, after bool, then func(*testing.T, *killScene, *pod, call)) bool {
	t.Helper()
	if v.claims {
		s.wipe(t)
	}
	p := s.pod(t, fmt.Sprintf("%02d-%s", at, sandboxA))
	c := p.verb(t, v.verb, s.c)
	if v.verb != "ADD" {
		s.add(t, p, s.c)
	}
	if v.verb == "GC" {
		c = s.gc(t)
	}
	killed := s.killAt(t, s.proxy, c, at, after)
	then(t, s, p, c)
	s.onlyKeeperLeft(t)
	if t.Failed() {
		t.Fatalf("%s killed at request %d", v.verb, at)
	}
	return killed
}

// connected demands that the repeated ADD did what it says. What the killed one
// took may be on its handle too, until DEL.
func (s *killScene) connected(t *testing.T, p *pod, r result) {
	t.Helper()
	now := s.objects(t)
	held := now.allocated(t)[p.handleID()]
	for _, address := range r.addresses() {
		s.reaches(t, address)
		if !slices.Contains(held, address) {
			t.Errorf("handle %s holds %v, not %s", p.handleID(), held, address)
		}
	}
	if record := now.endpoints(t)["web-0"].Spec; record.ContainerID != p.container || len(record.IPNetworks) != len(r.IPs) {
		t.Errorf("the record is %+v, want that of %s", record, p.container)
	}
}

// ownsItsBlocks demands that the next ADD takes from the block whose claim was
// interrupted, and ends the claim.
func (s *killScene) ownsItsBlocks(t *testing.T) {
	t.Helper()
	claimed := len(s.objects(t).blocks(t))
	next := s.pod(t, "next")
	s.works(t, next, s.add(t, next, s.c))
	now := s.objects(t)
	now.consistent(t)
	if blocks := len(now.blocks(t)); blocks > max(claimed, 2) {
		t.Errorf("the host had %d blocks and claimed another: %d", claimed, blocks)
	}
	s.del(t, next, s.c)
	s.nothingLeft(t)
}

func (s *killScene) wipe(t *testing.T) {
	t.Helper()
	for _, plural := range allocationPlurals {
		s.cluster.Wipe(t, crds+plural)
	}
}

// onlyKeeperLeft demands that the keeper is all there is, and works.
func (s *killScene) onlyKeeperLeft(t *testing.T) {
	t.Helper()
	now := s.objects(t)
	now.counted(t)
	if s.keeper == nil {
		s.nothingLeft(t)
		s.ownsItsBlocks(t)
		return
	}
	now.consistent(t)
	s.works(t, s.keeper, s.kept)
	s.recordOf(t, s.keeper, s.kept)
	if links := s.list(t); len(links) != 2 {
		t.Errorf("the host has %d interfaces, want its own and one pod's: %v", len(links), links)
	}
	if holders := now.allocated(t); len(holders) != 1 {
		t.Errorf("addresses are left: %v", holders)
	}
	if handles := now.under("/ipam/v2/handle/").keys(); len(handles) != 1 {
		t.Errorf("handles are left: %v", handles)
	}
	if notes := s.notes(t); len(notes) != 1 {
		t.Errorf("notes are left: %v", notes)
	}
}
