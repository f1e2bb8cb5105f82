package ipam

import (
	"context"
	"errors"
	"maps"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// sequence carries a plan out on an engine without transactions: several
// writes, ordered such that every prefix leaves a state that others survive
// (IPAM contract 5.2).
type sequence struct {
	store   datastore.Store
	plan    *plan
	written datastore.Written
}

func (s *sequence) run(ctx context.Context) error {
	steps := []func() datastore.Step{s.announce, s.writeBlocks, s.confirm}
	if s.plan.takesBack {
		steps = []func() datastore.Step{s.withdraw, s.writeBlocks, s.forget}
	}
	for i, step := range steps {
		mutations := step()
		if len(mutations) == 0 {
			continue
		}
		written, err := s.store.Write(ctx, mutations)
		maps.Copy(s.written, written)
		if err != nil {
			s.plan.outcome.handlesUntried = s.plan.takesBack && i < len(steps)-1
			return err
		}
		s.plan.outcome.blocksDone = s.plan.outcome.blocksDone || i > 0
	}
	return nil
}

// announce makes the affinities pending and counts the addresses in the
// handle: too high a count is harmless, a missing one is not.
func (s *sequence) announce() datastore.Step {
	var step datastore.Step
	for _, c := range s.plan.claims {
		if c.write {
			step = append(step, datastore.Put(c.key, &model.Affinity{State: model.StatePending}, c.revision))
		}
	}
	return append(step, mutations(s.plan.handles)...)
}

func (s *sequence) writeBlocks() datastore.Step { return mutations(s.plan.blocks) }

func (s *sequence) confirm() datastore.Step {
	var step datastore.Step
	for _, c := range s.plan.claims {
		if c.write {
			step = append(step, datastore.Put(c.key, confirmed(), s.written[c.key]))
		}
	}
	return step
}

// withdraw marks the affinities of blocks that are about to be given up.
func (s *sequence) withdraw() datastore.Step {
	if len(s.plan.blocks) == 0 {
		return nil
	}
	var step datastore.Step
	for _, e := range s.plan.released {
		step = append(step, datastore.Put(e.key, &model.Affinity{State: model.StatePendingDeletion}, e.revision))
	}
	return step
}

func (s *sequence) forget() datastore.Step {
	step := mutations(s.plan.handles)
	for _, e := range s.plan.released {
		if revision, marked := s.written[e.key]; marked {
			e.revision = revision
		}
		step = append(step, e.mutation())
	}
	return step
}

func mutations(edits []edit) datastore.Step {
	var step datastore.Step
	for _, e := range edits {
		step = append(step, e.mutation())
	}
	return step
}

// writeInSequence carries a plan out step by step. When a step fails, what has
// been done is read and recorded, and the decision is taken anew.
func (e *engine) writeInSequence(ctx context.Context, p *plan) error {
	s := &sequence{store: e.store, plan: p, written: datastore.Written{}}
	p.outcome = outcome{inSequence: true, written: s.written}
	err := s.run(ctx)
	if err == nil {
		e.facts.learnWritten(p, s.written)
		return nil
	}
	var conflict *datastore.ConflictError
	if !errors.As(err, &conflict) && !unknownOutcome(err) {
		e.unsettled = p
		return err
	}
	p.outcome.uncertain = conflict == nil
	return orAgain(e.settle(ctx, p))
}

// settle reads what a plan wrote and records how far it got.
func (e *engine) settle(ctx context.Context, p *plan) error {
	e.unsettled = p
	if err := e.read(ctx, gets(p.unsettled())...); err != nil {
		return err
	}
	e.unsettled = nil
	e.facts.settle(p)
	e.facts.lostRace(p)
	return nil
}
