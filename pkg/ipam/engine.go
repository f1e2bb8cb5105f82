package ipam

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// How often a decision is taken anew because someone else wrote in between,
// and the wait before that (IPAM contract, constants).
const (
	maxRounds    = 100
	firstBackoff = time.Millisecond
	lastBackoff  = 200 * time.Millisecond
)

// cleanupTimeout bounds what is undone after a failure (IPAM contract,
// constants).
const cleanupTimeout = 30 * time.Second

// Options of an Allocator; the zero value is usable.
type Options struct {
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Logger gets the warnings; nil: none are written.
	Logger *slog.Logger
	// Checked remembers pools between calls; nil: nothing does.
	Checked CheckedPools
	// Claimed remembers what the host has claimed lately; nil: nothing does.
	Claimed ClaimedBlocks
}

// Allocator gives out addresses from the blocks of a datastore. It is safe for
// concurrent use and keeps nothing between calls itself.
type Allocator struct {
	store   datastore.Store
	now     func() time.Time
	log     *slog.Logger
	checked CheckedPools
	claimed ClaimedBlocks
	// pause waits before a decision is taken again.
	pause func(ctx context.Context, round int) error
}

// New returns an allocator on a store.
func New(store datastore.Store, o Options) *Allocator {
	a := &Allocator{store: store, now: o.Now, log: o.Logger, checked: o.Checked, claimed: o.Claimed, pause: wait}
	if a.now == nil {
		a.now = time.Now
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	return a
}

// decision is what to do next: read needs, or write side, and then decide
// again; else write final and, unless more is to come, be done.
type decision struct {
	needs []datastore.Query
	side  *plan
	final *plan
	more  bool
}

// engine carries decisions out for one verb.
type engine struct {
	*Allocator
	facts  *facts
	warned int
	// unsettled is a plan of which it is not known how far it got.
	unsettled *plan
	// fetch reads what a decision needs.
	fetch func(ctx context.Context, queries ...datastore.Query) error
}

func (a *Allocator) engine(host string) *engine {
	e := &engine{Allocator: a, facts: newFacts(a.now(), host)}
	e.fetch = e.read
	return e
}

// read asks for objects and adds them to the facts.
func (e *engine) read(ctx context.Context, queries ...datastore.Query) error {
	answers, err := e.store.Read(ctx, queries...)
	if err != nil {
		return err
	}
	e.facts.learn(queries, answers)
	for ; e.warned < len(e.facts.warnings); e.warned++ {
		e.log.Warn(e.facts.warnings[e.warned])
	}
	return nil
}

// errAgain says that the facts have changed: decide again.
var errAgain = errors.New("the decision has to be taken again")

// run takes the decision and carries it out, again and again until it is done
// or fails. Lost races are repeated up to 100 times.
func (e *engine) run(ctx context.Context, decide func() (decision, error)) error {
	for round := 0; round < maxRounds; {
		d, err := decide()
		if err != nil {
			return err
		}
		switch {
		case len(d.needs) > 0:
			err = e.fetch(ctx, d.needs...)
		case !d.side.empty():
			err = e.write(ctx, d.side)
		case d.final.empty():
			return nil
		default:
			if err = e.write(ctx, d.final); err == nil && !d.more {
				return nil
			}
		}
		if errors.Is(err, errAgain) {
			err = e.pause(ctx, round)
			round++
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: Max retries hit - excessive concurrent IPAM requests (%d rounds)", datastore.ErrConflict, maxRounds)
}

// wait lets others finish: 1 ms, doubled up to 200 ms, with jitter.
func wait(ctx context.Context, round int) error {
	pause := lastBackoff
	if round < 8 {
		pause = min(lastBackoff, firstBackoff<<round)
	}
	timer := time.NewTimer(pause/2 + rand.N(pause/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return &datastore.UnavailableError{Doing: "waiting for other IPAM requests to finish", Err: context.Cause(ctx)}
	}
}

// write carries a plan out and adds what it wrote to the facts. errAgain means
// that the facts have changed and the decision has to be taken again: a guard
// did not hold, or the answer was lost and the outcome had to be looked up.
func (e *engine) write(ctx context.Context, p *plan) error {
	e.noteClaims(p)
	if !e.store.Transactional() {
		return e.writeInSequence(ctx, p)
	}
	written, err := e.store.Write(ctx, p.transaction())
	if err == nil {
		e.facts.learnWritten(p, written)
		return nil
	}
	if unknownOutcome(err) {
		p.outcome.uncertain = true
		return orAgain(e.settle(ctx, p))
	}
	var conflict *datastore.ConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	if !e.facts.learnConflict(conflict, p.keys()) {
		if err := e.fetch(ctx, gets(p.keys())...); err != nil {
			return err
		}
	}
	e.facts.lostRace(p)
	return errAgain
}

// orAgain is errAgain unless there is a failure.
func orAgain(err error) error {
	if err != nil {
		return err
	}
	return errAgain
}

func unknownOutcome(err error) bool {
	return errors.Is(err, datastore.ErrUnavailable) && datastore.ReasonOf(err) == datastore.OutcomeUnknown
}

func gets(keys []model.Key) []datastore.Query {
	queries := make([]datastore.Query, len(keys))
	for i, key := range keys {
		queries[i] = datastore.Get{Key: key}
	}
	return queries
}
