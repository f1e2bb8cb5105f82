package ipam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
}

// run tries all schedules, depth first, and returns how many there were.
func (e *explorer) run(t *testing.T) (schedules int) {
	t.Helper()
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
			verifySurvivable(t, c.store)
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
		verifyConsistent(c.T, c.store)
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

func (s *stage) nobodyDied() bool {
	return !slices.ContainsFunc(s.gates, func(g *gate) bool { return g.dead })
}

// stage holds the actors; one of them moves at a time.
type stage struct {
	names   []string
	gates   []*gate
	results []error
	// faulty: something has befallen a request.
	faulty bool
	trace  strings.Builder
}

// gate is where an actor waits for its turn.
type gate struct {
	// arrived gets the request that the actor waits with; it is closed at the
	// actor's end.
	arrived chan memory.Call
	proceed chan fate
	waiting *memory.Call
	dead    bool
}

func newStage(c *cluster, actors []actor) *stage {
	s := &stage{results: make([]error, len(actors))}
	for i, actor := range actors {
		g := &gate{arrived: make(chan memory.Call), proceed: make(chan fate)}
		s.names, s.gates = append(s.names, actor.name), append(s.gates, g)
		go func() {
			defer close(g.arrived)
			store := &gated{Store: c.store.Competitor(), gate: g}
			if actor.foreign != nil {
				s.results[i] = actor.foreign(context.Background(), c, store)
				return
			}
			a := New(store, Options{Now: func() time.Time { return c.clock.Now().Add(time.Duration(i)) }})
			a.pause = func(context.Context, int) error { return nil }
			s.results[i] = actor.run(c, a)
		}()
		g.await()
	}
	return s
}

func (g *gate) await() {
	g.waiting = nil
	if call, ok := <-g.arrived; ok {
		g.waiting = &call
	}
}

func (s *stage) waits(actor int) bool { return s.gates[actor].waiting != nil }

func (s *stage) writes(actor int) bool { return s.gates[actor].waiting.IsWrite() }

func (s *stage) step(c choice) {
	g := s.gates[c.actor]
	fmt.Fprintf(&s.trace, "\n%s: %s%s", s.names[c.actor], g.waiting, c.fate)
	s.faulty = s.faulty || c.fate != served
	g.proceed <- c.fate
	g.await()
}

// end lets those die that still wait.
func (s *stage) end() {
	for _, g := range s.gates {
		for g.waiting != nil {
			g.proceed <- killed
			g.await()
		}
	}
}

// gated is the datastore as an actor sees it. Without transactions each
// mutation is a request of its own.
type gated struct {
	datastore.Store
	gate *gate
}

var errKilledHere = errors.New("killed")

// pass waits for the turn.
func (g *gated) pass(call memory.Call) (fate, error) {
	if g.gate.dead {
		return killed, errKilledHere
	}
	g.gate.arrived <- call
	f := <-g.gate.proceed
	if f == killed {
		g.gate.dead = true
		return f, errKilledHere
	}
	return f, nil
}

func (g *gated) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	if _, err := g.pass(memory.Call{Queries: queries}); err != nil {
		return nil, err
	}
	return g.Store.Read(ctx, queries...)
}

func (g *gated) Write(ctx context.Context, steps ...datastore.Step) (datastore.Written, error) {
	if g.Transactional() {
		return g.request(ctx, steps...)
	}
	all := datastore.Written{}
	for _, step := range steps {
		for _, mutation := range step {
			if mutation.Op == datastore.Expect {
				continue
			}
			written, err := g.request(ctx, datastore.Step{mutation})
			for key, revision := range written {
				all[key] = revision
			}
			if err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func (g *gated) request(ctx context.Context, steps ...datastore.Step) (datastore.Written, error) {
	call := memory.Call{Steps: steps}
	switch f, err := g.pass(call); {
	case err != nil:
		return nil, err
	case f == requestLost:
		return nil, memory.LoseAnswer(call)
	case f == answerLost:
		if _, err := g.Store.Write(ctx, steps...); err != nil {
			return nil, err
		}
		return nil, memory.LoseAnswer(call)
	}
	return g.Store.Write(ctx, steps...)
}
