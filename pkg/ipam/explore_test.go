package ipam

import (
	"context"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// actor is one operation of an interleaving.
type actor struct {
	name string
	// run is the operation, on a store that waits for its turn before each
	// request.
	run func(c *cluster, a *Allocator) error
	// foreign is an operation of another program on the same data instead.
	foreign func(ctx context.Context, c *cluster, store datastore.Store) error
	// recover is what the runtime, or the operator, does when the operation
	// failed or was killed; nil: the operation must not fail.
	recover func(c *cluster) error
	// mayFail: it may also fail without a fault, and then leaves nothing.
	mayFail bool
}

// interleaving is a set of operations that are run in every order of their
// requests, as far as the bound on changes of turn goes.
type interleaving struct {
	name    string
	prepare func(c *cluster)
	actors  []actor
	// verify is asked in addition to the invariants when all is over, calmly
	// only if nothing befell a request.
	verify, calmly func(c *cluster)
	// handleRace: one handle is added to and released at once, which only
	// transactions survive (beyond 6: a runtime never does it).
	handleRace bool
	// sharedHandle: several write one handle at once. Without transactions it
	// is then not known what a lost answer would have said, so none is lost.
	sharedHandle bool
	// large: there are very many schedules; fewer changes of turn are tried.
	large bool
	// loose: without transactions, claims may be left half made.
	// halfReleased: another program may leave them half released, always.
	loose, halfReleased bool
}

// fate is what befalls a request.
type fate int

const (
	served fate = iota
	// killed: the operation dies before the request.
	killed
	// answerLost: the write is done, but its answer does not arrive.
	answerLost
	// requestLost: the write is not done, which the caller cannot know.
	requestLost
)

func (f fate) String() string { return [...]string{"", " killed", " answer lost", " request lost"}[f] }

// choice is one step of a schedule: whose turn it is, and what happens.
type choice struct {
	actor int
	fate  fate
}

// turn is where a run could have gone on differently.
type turn struct {
	chosen  choice
	options []choice
}

// explorer finds all schedules of an interleaving.
type explorer struct {
	interleaving
	options memory.Options
	// turns bounds how often an actor that could go on loses its turn; faults
	// bounds the requests that are not served.
	turns, faults int

	prepared *cluster
	auditor  *auditor
}

// run tries all schedules, depth first, and returns how many there were.
func (e *explorer) run(t *testing.T) (schedules int) {
	t.Helper()
	e.auditor = newAuditor()
	var prefix []choice
	for {
		schedules++
		taken := e.follow(t, prefix)
		if t.Failed() {
			return schedules
		}
		next := e.nextPrefix(taken)
		if next == nil {
			return schedules
		}
		prefix = next
	}
}

// nextPrefix changes the last choice that has an alternative left.
func (e *explorer) nextPrefix(taken []turn) []choice {
	for i := len(taken) - 1; i >= 0; i-- {
		at := taken[i]
		for n, option := range at.options {
			if option == at.chosen && n+1 < len(at.options) {
				prefix := make([]choice, 0, i+1)
				for _, earlier := range taken[:i] {
					prefix = append(prefix, earlier.chosen)
				}
				return append(prefix, at.options[n+1])
			}
		}
	}
	return nil
}

// cluster is a copy of the prepared one, with a clock of its own.
func (e *explorer) cluster(t *testing.T) *cluster {
	if e.prepared == nil {
		e.prepared = newCluster(t, e.options)
		e.prepare(e.prepared)
	}
	c := &cluster{T: t, store: e.prepared.store.Copy(), clock: &clock{now: e.prepared.clock.Now()}}
	c.ipam = New(c.store, Options{Now: c.clock.Now})
	return c
}

// follow runs one schedule on a fresh cluster: the prefix, then the first
// option each time.
func (e *explorer) follow(t *testing.T, prefix []choice) (taken []turn) {
	t.Helper()
	c := e.cluster(t)
	s := newStage(c, e.actors)
	defer s.end()
	current, turns, faults := -1, 0, 0
	for {
		options := e.choices(s, current, turns, faults)
		if len(options) == 0 {
			break
		}
		at := turn{chosen: options[0], options: options}
		if len(taken) < len(prefix) {
			at.chosen = prefix[len(taken)]
		}
		taken = append(taken, at)
		turns += count(current >= 0 && at.chosen.actor != current && s.waits(current))
		faults += count(at.chosen.fate != served)
		current = at.chosen.actor
		writes := s.writes(current)
		s.step(at.chosen)
		if writes && (!e.handleRace || c.store.Transactional()) {
			e.auditor.survivable(t, c.store)
		}
		if t.Failed() {
			break
		}
	}
	if !t.Failed() {
		e.judge(c, s)
	}
	if t.Failed() {
		t.Fatalf("after%s:\n%s", s.trace.String(), c.store.Dump())
	}
	return taken
}

func count(happened bool) int {
	if happened {
		return 1
	}
	return 0
}

// choices lists whose turn it may be, the current actor's first.
func (e *explorer) choices(s *stage, current, turns, faults int) (options []choice) {
	add := func(actor int) {
		options = append(options, choice{actor, served})
		if faults >= e.faults || e.actors[actor].recover == nil || e.actors[actor].foreign != nil {
			return
		}
		options = append(options, choice{actor, killed})
		if s.writes(actor) {
			options = append(options, choice{actor, answerLost}, choice{actor, requestLost})
		}
	}
	if current >= 0 && s.waits(current) {
		add(current)
		if turns >= e.turns {
			return options
		}
	}
	for actor := range e.actors {
		if actor != current && s.waits(actor) {
			add(actor)
		}
	}
	return options
}

// judge lets the failed be recovered and checks the invariants.
func (e *explorer) judge(c *cluster, s *stage) {
	c.Helper()
	c.clock.advance(time.Millisecond)
	for i, actor := range e.actors {
		err := s.results[i]
		if err == nil {
			continue
		}
		if !s.faulty && actor.mayFail {
			continue
		}
		if actor.recover == nil || !s.faulty {
			c.Errorf("%s: %v", actor.name, err)
			continue
		}
		if err := actor.recover(c); err != nil {
			c.Errorf("recovering from %s: %v", actor.name, err)
		}
	}
	if e.verify != nil {
		e.verify(c)
	}
	if e.calmly != nil && !s.faulty {
		e.calmly(c)
	}
	if !e.handleRace || c.store.Transactional() {
		e.auditor.consistent(c.T, c.store)
	}
	if s.nobodyDied() && !e.halfReleased && (!e.loose || c.store.Transactional()) {
		verifyClaims(c)
	}
}

// verifyClaims checks that no claim is half made: each affinity is confirmed,
// and each block of a host has one.
func verifyClaims(c *cluster) {
	c.Helper()
	for _, path := range c.store.Paths() {
		key, ok := model.ParsePath(path)
		if !ok {
			continue
		}
		switch key := key.(type) {
		case model.AffinityKey:
			if affinity := c.affinity(key.Host, key.CIDR.String()); !affinity.State.Confirmed() {
				c.Errorf("%s is %s", key, affinity.State)
			}
		case model.BlockKey:
			if owner, ok := ownerKey(c.block(key.CIDR.String())); ok && read[model.Affinity](c, owner) == nil {
				c.Errorf("%s does not exist", owner)
			}
		}
	}
}
