package storm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Environment variables for longer storms, and for one seen before.
const (
	roundsVariable = "STORM_ROUNDS"
	seedVariable   = "STORM_SEED"
)

// number reads an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("environment variable %s: %v", name, err)
	}
	return value
}

// batches is how many batches of calls a history has; a GC and a look at
// everything come after so many of them, if they did not come by chance.
const (
	batches    = 30
	auditEvery = 10
)

// TestHistory plays random histories on hosts of every kind.
func TestHistory(t *testing.T) {
	t.Parallel()
	rounds := number(t, roundsVariable, 1)
	// One round is the same history every time; many are to find new ones.
	seed := number(t, seedVariable, 1)
	if rounds > 1 && os.Getenv(seedVariable) == "" {
		seed = uint64(time.Now().UnixNano())
	}
	for round := range rounds {
		for _, kind := range []string{embedded, etcd, executed} {
			t.Run(fmt.Sprintf("%s %d", kind, round), func(t *testing.T) {
				// With one round each the storms mix.
				if rounds == 1 {
					t.Parallel()
				}
				play(t, kind, seed+round)
			})
		}
	}
}

// play carries out the history of a seed.
func play(t *testing.T, kind string, seed uint64) {
	h := newHostOf(t, kind)
	s := &storm{book: &book{host: h}}
	plan := &planner{book: s.book, random: rand.New(rand.NewPCG(seed, 0))}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d; the history:\n%s", seedVariable, seed, strings.Join(s.history, "\n"))
		}
	})
	for i := 0; i < batches && !t.Failed(); i++ {
		s.carryOut(t, plan.batch(t))
		if (i+1)%auditEvery == 0 && !t.Failed() {
			s.collect(t)
		}
	}
	if !t.Failed() {
		s.end(t)
	}
}

// end is a node whose last container goes: the runtime destroys the sandboxes
// and says that nothing is valid.
func (s *storm) end(t *testing.T) {
	t.Helper()
	for _, c := range s.containers {
		s.removeSandbox(t, c.sandbox)
	}
	s.collect(t)
	s.host.nothingLeft(t)
}

// storm is a history as it is made.
type storm struct {
	*book
	history []string
}

// collect has GC remove what is in doubt, and looks at everything.
func (s *storm) collect(t *testing.T) {
	t.Helper()
	s.carryOut(t, []action{{verb: "GC"}})
	if !t.Failed() {
		s.audit(t)
	}
}

// carryOut makes all calls of a batch at once and enters their outcomes.
func (s *storm) carryOut(t *testing.T, batch []action) {
	t.Helper()
	outcomes := make([]outcome, len(batch))
	failures := make([]error, len(batch))
	var group sync.WaitGroup
	for i, what := range batch {
		if what.verb == crash {
			continue
		}
		made := s.prepare(what)
		group.Go(func() { outcomes[i], failures[i] = s.host.execute(t, made) })
	}
	if last := batch[len(batch)-1]; last.verb == crash {
		<-time.After(last.killAfter)
		s.host.etcd.Stop()
		s.host.etcd.Restart(t)
	}
	group.Wait()
	for i, what := range batch {
		o, err := outcomes[i], failures[i]
		s.history = append(s.history, fmt.Sprintf("%3d %s: %s (%v)", len(s.history), what, o, o.took.Round(time.Millisecond)))
		if err == nil {
			err = s.learn(what, o)
		}
		if err == nil && o.failure.Code != 0 && !s.excused(what, o, batch) {
			err = fmt.Errorf("it %v\n%s", o, o.stderr)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The codes of a datastore that is away, for STATUS too; of a host that serves
// its running pods badly; of an address that the host has a route for; of a
// name that is another's.
const (
	tryAgain     = 11
	notAvailable = 50
	limited      = 51
	conflict     = 111
	nameTaken    = 116
)

// excused are the failures that the contracts allow.
func (s *storm) excused(what action, o outcome, batch []action) bool {
	switch {
	case batch[len(batch)-1].verb == crash && (o.failure.Code == tryAgain || o.failure.Code == notAvailable):
		return true
	case what.verb == "STATUS" && o.failure.Code == limited:
		return s.halfAdded(batch)
	case what.verb == "ADD" && o.failure.Code == conflict:
		return s.halfDeleted(o, batch)
	case what.verb == "ADD" && o.failure.Code == nameTaken:
		return s.predecessorHas(what, o)
	}
	return false
}

// predecessorHas: until the DEL of the pod's last sandbox, a name for a second
// interface is that one's, and so is an interface with such a name in the
// namespace that both share (Linux data plane contract 9.1 A).
func (s *storm) predecessorHas(what action, o outcome) bool {
	return slices.ContainsFunc(s.containers, func(c *container) bool {
		return c != what.container && c.pod == what.container.pod && strings.Contains(o.failure.Msg, c.id+",") &&
			(what.ifName == "net1" || c.sandbox == what.container.sandbox)
	})
}

// halfAdded: on the embedded datastore an ADD takes its address before it makes
// the nftables table, whose absence STATUS reports if an address is taken.
func (s *storm) halfAdded(batch []action) bool {
	adding := slices.ContainsFunc(batch, func(a action) bool { return a.verb == "ADD" })
	return adding || slices.ContainsFunc(s.containers, func(c *container) bool { return c.killed })
}

// halfDeleted: outside Kubernetes DEL frees the addresses before it removes the
// interface (network plugin contract 6.5). Whoever gets such an address while
// the interface is still there, because DEL is at work or was killed, is told
// whose it is and fails.
func (s *storm) halfDeleted(o outcome, batch []action) bool {
	for _, c := range s.containers {
		if c.pod == "" && strings.Contains(o.failure.Msg, c.id+",") {
			return c.in(doubt) || slices.ContainsFunc(batch, func(a action) bool { return a.verb == "DEL" && a.container == c })
		}
	}
	return false
}

// prepare is the call of an action.
func (s *storm) prepare(what action) call {
	made := call{verb: what.verb, conf: s.host.conf}
	switch {
	case what.verb == "GC":
		made.conf = made.conf.with("cni.dev/valid-attachments", s.valid())
	case what.verb == "CHECK":
		made = what.container.checkCall(what.ifName, s.host.conf)
	case what.container != nil:
		made = what.container.call(what.verb, what.ifName, s.host.conf)
	}
	if what.netns == withoutNetns {
		made.netns = ""
	}
	made.killAfter = what.killAfter
	return made
}
