package storm

import (
	"fmt"
	"math/rand/v2"
	"os"
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

// TestHistory plays random histories on both datastores.
func TestHistory(t *testing.T) {
	t.Parallel()
	rounds := number(t, roundsVariable, 1)
	seed := number(t, seedVariable, 0)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for round := range rounds {
		for _, datastore := range []string{"embedded", "etcd"} {
			t.Run(fmt.Sprintf("%s %d", datastore, round), func(t *testing.T) {
				// With one round each the two datastores' storms mix.
				if rounds == 1 {
					t.Parallel()
				}
				play(t, datastore, seed+round)
			})
		}
	}
}

// play carries out the history of a seed.
func play(t *testing.T, datastore string, seed uint64) {
	h := newHost(t)
	if datastore == "etcd" {
		h.onEtcd(t)
	}
	s := &storm{runtime: &runtime{host: h}}
	plan := &planner{runtime: s.runtime, random: rand.New(rand.NewPCG(seed, 0))}
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
		for _, c := range s.containers {
			c.lose()
		}
		s.collect(t)
		h.nothingLeft(t)
	}
}

// storm is a history as it is made.
type storm struct {
	*runtime
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
		made := s.prepare(what)
		group.Go(func() { outcomes[i], failures[i] = s.host.execute(t, made) })
	}
	group.Wait()
	for i, what := range batch {
		o, err := outcomes[i], failures[i]
		s.history = append(s.history, fmt.Sprintf("%3d %s: %s (%v)", len(s.history), what, o, o.took.Round(time.Millisecond)))
		if err == nil {
			err = s.learn(what, o)
		}
		if err == nil && o.failure.Code != 0 {
			err = fmt.Errorf("it %v\n%s", o, o.stderr)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
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
