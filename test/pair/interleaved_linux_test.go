package pair

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/test/pair/gate"
)

func addDuringDelete(t *testing.T, s *scene) {
	a := s.pod(t, sandboxA)
	s.add(t, a, s.c)
	taken, o := s.trace(t, a.verb(t, "DEL", s.c))
	o.succeeds(t)
	for n := range taken {
		// Fresh namespaces: what is tested is the host.
		a, b := s.pod(t, fmt.Sprintf("a%02d-%s", n, sandboxA)), s.pod(t, fmt.Sprintf("b%02d-%s", n, sandboxB))
		s.add(t, a, s.c)
		deleting := s.startStopped(t, a.verb(t, "DEL", s.c), at(n))
		deleting.stops()
		added := s.beside(t, deleting, b.verb(t, "ADD", s.c)).result(t)
		deleting.wait(t).succeeds(t)
		s.works(t, b, added)
		s.recordOf(t, b, added)
		s.holds(t, a)
		s.del(t, b, s.c)
		s.nothingLeft(t)
		if t.Failed() {
			t.Fatalf("DEL stopped at step %d of %d: %v", n, len(taken), taken[n])
		}
	}
}

// writing is the beginning of a transaction that writes the datastore.
func writing(c gate.Call) bool {
	return c.Name == "flock" && c.Exclusive && strings.HasSuffix(c.Path, datastoreFile)
}

// condition says at which step a process is to stop.
type condition func(n int, c gate.Call) bool

// locking is the beginning of a turn of IPAM's.
func locking(c gate.Call) bool {
	return c.Name == "flock" && c.Exclusive && strings.HasSuffix(c.Path, "/ipam.lock")
}

// following is the first step for which is holds after one for which earlier
// did.
func following(earlier, is func(gate.Call) bool) condition {
	passed := false
	return func(_ int, c gate.Call) bool {
		if passed && is(c) {
			return true
		}
		passed = passed || earlier(c)
		return false
	}
}

func anything(gate.Call) bool { return true }

func netlinkRequest(c gate.Call) bool { return c.Type() != 0 }

// creating is the request that makes a link, naming is the one that sets its
// alias.
func creating(c gate.Call) bool {
	return c.Type() == unix.RTM_NEWLINK && c.Flags()&unix.NLM_F_CREATE != 0
}

func naming(c gate.Call) bool { return c.Holds("calico-cni/" + network + "/") }

func killedBeforeAlias(t *testing.T, s *scene) {
	kill := func(p *pod) {
		adding := s.startStopped(t, p.verb(t, "ADD", s.c), func(_ int, c gate.Call) bool { return naming(c) })
		adding.await(t)
		adding.kill(t)
	}
	a, b := s.pod(t, sandboxA), s.pod(t, sandboxB)
	kill(a)
	added := s.add(t, b, s.c)
	s.works(t, b, added)
	s.del(t, b, s.c)
	s.del(t, a, s.c)
	s.nothingLeft(t)

	again := s.pod(t, "again-"+sandboxA)
	kill(again)
	s.del(t, again, s.c)
	s.nothingLeft(t)
}

// lateAdd needs two sandboxes that share a record. Other containers are
// strangers and both work.
func lateAdd(t *testing.T, s *scene) {
	a, b := s.pod(t, sandboxA), s.pod(t, sandboxB)
	adding := s.startStopped(t, a.verb(t, "ADD", s.c), following(s.taking(), netlinkRequest))
	adding.await(t)
	second := s.add(t, b, s.c)
	adding.proceed()
	o := adding.wait(t)
	if s.kubernetes() {
		o.fails(t, cnierr.Overtaken, sandboxB)
		s.holds(t, a)
		s.recordOf(t, b, second)
	} else {
		s.works(t, a, o.result(t))
	}
	s.works(t, b, second)
}

// taking is the last lock before an ADD has its addresses and begins with the
// link.
func (s *scene) taking() func(gate.Call) bool {
	if s.read == nil {
		return writing
	}
	return locking
}

// beforeRecordWrite is the last step at which an ADD still has to find out that
// its link is gone. A datastore file is written under a guard. A pod is not
// (datastore contract 4.11): there it is the look at the link right before.
func (s *scene) beforeRecordWrite(t *testing.T) condition {
	t.Helper()
	if s.read == nil {
		return following(creating, writing)
	}
	// Locks are not counted: the first ADD of a host takes more of them.
	requests := slices.DeleteFunc(s.traceAdd(t), func(c gate.Call) bool { return !netlinkRequest(c) })
	if last := requests[len(requests)-1]; last.Type() != unix.RTM_GETLINK {
		t.Fatalf("the last netlink request of ADD is %s, want a look at the link", last)
	}
	seen := 0
	return func(_ int, c gate.Call) bool {
		if netlinkRequest(c) {
			seen++
		}
		return seen == len(requests)
	}
}

// traceAdd returns the steps of an ADD on this host, and undoes it.
func (s *scene) traceAdd(t *testing.T) []gate.Call {
	t.Helper()
	p := s.pod(t, "traced-"+sandboxA)
	taken, o := s.trace(t, p.verb(t, "ADD", s.c))
	o.succeeds(t)
	s.del(t, p, s.c)
	return taken
}

func overtakenAdd(t *testing.T, s *scene) {
	for name, when := range map[string]condition{
		"after step 3":            following(naming, anything),
		"before its record write": s.beforeRecordWrite(t),
	} {
		a, b := s.pod(t, sandboxA), s.pod(t, sandboxB)
		adding := s.startStopped(t, a.verb(t, "ADD", s.c), when)
		adding.await(t)
		second := s.add(t, b, s.c)
		adding.proceed()
		o := adding.wait(t)
		switch {
		case !s.kubernetes():
			s.works(t, a, o.result(t))
		case o.status == 0:
			t.Errorf("%s: the late ADD succeeds: %s", name, o.stdout)
		default:
			s.holds(t, a)
			s.recordOf(t, b, second)
		}
		s.works(t, b, second)
		s.del(t, b, s.c)
		s.del(t, a, s.c)
		s.nothingLeft(t)
		if t.Failed() {
			t.Fatalf("ADD A stopped %s; it ended with status %d: %s", name, o.status, o.failure.Msg)
		}
	}
}

// failingAdd refuses every step in turn. Some are not needed for success, such
// as the advisory lock; then B must work.
func failingAdd(t *testing.T, s *scene) {
	taken := s.traceAdd(t)
	for n := range taken {
		a, b := s.pod(t, fmt.Sprintf("a%02d-%s", n, sandboxA)), s.pod(t, fmt.Sprintf("b%02d-%s", n, sandboxB))
		first := s.add(t, a, s.c)
		adding := b.verb(t, "ADD", s.c)
		adding.decide = failing(n, unix.EIO)
		o := s.run(t, adding)
		s.holds(t, a, first.addresses()...)
		if o.status == 0 {
			s.works(t, b, o.result(t))
		} else {
			s.holds(t, b)
			s.recordOf(t, a, first)
			if link := s.linkByAlias(t, b.alias()); link != nil {
				t.Errorf("%s is left of the ADD that failed", link.Attrs().Name)
			}
		}
		s.del(t, b, s.c)
		s.del(t, a, s.c)
		s.nothingLeft(t)
		if t.Failed() {
			t.Fatalf("ADD refused at step %d of %d: %v; it ended with status %d: %s", n, len(taken), taken[n], o.status, o.failure.Msg)
		}
	}
}
