package pair

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"calico-cni/test/etcdtest"
	"calico-cni/test/pair/gate"
)

// aftermath is what a runtime may do after a verb was killed.
type aftermath struct {
	name string
	do   func(t *testing.T, s *scene, verb string, p *pod)
}

var aftermaths = []aftermath{
	{"the verb again, and DEL", func(t *testing.T, s *scene, verb string, p *pod) {
		o := s.run(t, s.killable(t, verb, p)).succeeds(t)
		if verb == "ADD" {
			// What the killed one took is the container's until its DEL.
			for _, address := range o.result(t).addresses() {
				s.reaches(t, address)
			}
			s.recordOf(t, p, o.result(t))
		}
		s.del(t, p, s.c)
	}},
	{"DEL", func(t *testing.T, s *scene, _ string, p *pod) { s.del(t, p, s.c) }},
	{"the end of the sandbox, and GC", func(t *testing.T, s *scene, _ string, p *pod) {
		p.links.Close()
		p.network.Remove(t)
		s.run(t, hostVerb(t, "GC", s.c.gcKey(validKey, attachments()))).succeeds(t)
		s.destroyed(t)
	}},
	{"the pod's next sandbox, and DEL of both", func(t *testing.T, s *scene, _ string, p *pod) {
		b := s.pod(t, "next-"+p.container)
		added := s.add(t, b, s.c)
		s.works(t, b, added)
		s.del(t, p, s.c)
		s.works(t, b, added)
		s.recordOf(t, b, added)
		s.del(t, b, s.c)
	}},
}

// destroyed waits until the kernel has destroyed a namespace, and what ended in
// it, which it does at leisure.
func (s *scene) destroyed(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); len(s.list(t)) > 1 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

// killable is the call of a verb on a pod; to GC the pod is not valid.
func (s *scene) killable(t *testing.T, verb string, p *pod) call {
	t.Helper()
	if verb == "GC" {
		return hostVerb(t, "GC", s.c.gcKey(validKey, attachments()))
	}
	return p.verb(t, verb, s.c)
}

// killPoint is a moment in a verb's life; kill reports false if the verb ended
// before.
type killPoint struct {
	name string
	kill func(t *testing.T, s *scene, c call) bool
}

// changes are the steps before which a process is killed: each change of the
// host, and the begin and end of each transaction of the embedded file. Asking
// again for a lock that another transaction has is no new step.
type changes struct{ asked bool }

func (s *changes) is(c gate.Call) bool {
	if !own(c) {
		return false
	}
	switch c.Name {
	case "write":
		return strings.HasPrefix(c.Path, "/proc/sys/")
	case "flock":
		again := s.asked && c.Exclusive
		s.asked = c.Exclusive
		return strings.HasSuffix(c.Path, datastoreFile) && !again
	}
	// Of four routing requests the third only asks (rtnetlink(7)).
	asks := c.Type() < unix.RTM_MAX && c.Type()%4 == 2
	return c.Type() != 0 && !asks
}

var killGates = []string{"sendto", "flock", "write"}

// hostPoints are the changes that a verb makes to this host.
func (s *scene) hostPoints(t *testing.T, verb string) (points []killPoint) {
	t.Helper()
	p := s.before(t, verb, "traced")
	c := s.killable(t, verb, p)
	c.gated = killGates
	taken, o := s.trace(t, c)
	o.succeeds(t)
	s.del(t, p, s.c)
	var change changes
	for _, step := range taken {
		if !change.is(step) {
			continue
		}
		n := len(points)
		points = append(points, killPoint{fmt.Sprintf("step %d, %s", n, step), func(t *testing.T, s *scene, c call) bool {
			return s.killBefore(t, c, n)
		}})
	}
	return points
}

// killBefore kills a call before its n-th change of the host.
func (s *scene) killBefore(t *testing.T, c call, n int) bool {
	t.Helper()
	c.gated = killGates
	made := 0
	var change changes
	doomed := s.startStopped(t, c, func(_ int, step gate.Call) bool {
		if !change.is(step) {
			return false
		}
		made++
		return made == n+1
	})
	if !doomed.stops() {
		doomed.wait(t).succeeds(t)
		return false
	}
	doomed.kill(t)
	return true
}

// requestPoints are the requests that a verb makes to etcd, twice: before each,
// and after it was done.
func (s *scene) requestPoints(t *testing.T, r *reaper, verb string) (points []killPoint) {
	t.Helper()
	p := s.before(t, verb, "counted")
	r.killAt(t, s.host, s.killable(t, verb, p), -1, false)
	requests := r.seen
	s.del(t, p, s.c)
	for at := range requests {
		for _, after := range []bool{false, true} {
			when := map[bool]string{false: "before it is sent", true: "done and not answered"}[after]
			points = append(points, killPoint{fmt.Sprintf("request %d %s", at, when), func(t *testing.T, s *scene, c call) bool {
				return r.killAt(t, s.host, c, at, after)
			}})
		}
	}
	return points
}

// before makes the pod of a verb; DEL and GC find it on the network.
func (s *scene) before(t *testing.T, verb, container string) *pod {
	t.Helper()
	p := s.pod(t, container)
	if verb != "ADD" {
		s.add(t, p, s.c)
	}
	return p
}

// fewestPoints is how many moments of a verb there are at least. A change that
// makes them fewer has to say so here.
var fewestPoints = map[string]map[string]int{
	"etcd":     {"ADD": 36, "DEL": 13, "GC": 13},
	"embedded": {"ADD": 40, "DEL": 17, "GC": 17},
}

// everyAftermathVariable asks for every aftermath of every kill.
const everyAftermathVariable = "KILL_EVERY_AFTERMATH"

// TestKillPoints kills ADD, DEL and GC at every request to etcd, around every
// transaction of the embedded file and before every change of the host.
// Whatever the runtime does then, nothing is lost or left.
func TestKillPoints(t *testing.T) {
	t.Parallel()
	for _, datastore := range []string{"etcd", "embedded"} {
		for _, verb := range []string{"ADD", "DEL", "GC"} {
			t.Run(datastore+"/"+verb, func(t *testing.T) {
				t.Parallel()
				s := &scene{identity: identities[1]}
				var points []killPoint
				if datastore == "etcd" {
					s.host, s.c = newEtcdHost(t, etcdtest.Options{}, cluster(pool4, pool6))
					r := s.newReaper(t, strings.TrimPrefix(s.etcd.Endpoint, "http://"))
					s.c = s.c.with("etcd_endpoints", "http://"+r.address())
					s.warmUp(t)
					points = s.requestPoints(t, r, verb)
				} else {
					s.host, s.c = newHost(t), newConfig()
					s.warmUp(t)
				}
				points = append(points, s.hostPoints(t, verb)...)
				t.Logf("%s on %s: %d kill points", verb, datastore, len(points))
				if fewest := fewestPoints[datastore][verb]; len(points) < fewest {
					t.Errorf("there are %d kill points, want at least %d", len(points), fewest)
				}
				s.killAll(t, verb, points)
			})
		}
	}
}

// killAll kills a verb at each point, with every aftermath or one in turn.
func (s *scene) killAll(t *testing.T, verb string, points []killPoint) {
	t.Helper()
	tables := s.tables(t)
	for i, point := range points {
		chosen := aftermaths[i%len(aftermaths) : i%len(aftermaths)+1]
		if os.Getenv(everyAftermathVariable) != "" {
			chosen = aftermaths
		}
		for j, after := range chosen {
			p := s.before(t, verb, fmt.Sprintf("p%03d%d-%s", i, j, sandboxA))
			killed := point.kill(t, s, s.killable(t, verb, p))
			after.do(t, s, verb, p)
			s.nothingLeft(t)
			if now := s.tables(t); now != tables {
				t.Errorf("nftables tables are %q, were %q", now, tables)
			}
			if t.Failed() {
				t.Fatalf("%s killed (%v) at %s, then %s", verb, killed, point.name, after.name)
			}
		}
	}
}
