package ipam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
)

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

func (s *stage) nobodyDied() bool {
	return !slices.ContainsFunc(s.gates, func(g *gate) bool { return g.dead })
}
