package memory

import (
	"context"
	"fmt"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/keyspace"
	"calico-cni/pkg/model"
)

// Options says how a Store behaves. The zero value is a fast transactional
// store.
type Options struct {
	// NonTransactional makes Write behave as on Kubernetes: Expect mutations
	// are ignored, step is applied after step, and the first failure stops.
	NonTransactional bool
	// Latency is how long a round trip takes.
	Latency time.Duration
	// Identify gives a created v3 resource its UID and creation time; nil
	// means keyspace.Identify.
	Identify func(*model.Metadata)
}

// Store is a datastore in memory.
type Store struct {
	options Options
	data    *data
	calls   *callLog
}

var _ datastore.Store = (*Store)(nil)

// New returns an empty store.
func New(options Options) *Store {
	if options.Identify == nil {
		options.Identify = keyspace.Identify
	}
	return &Store{options: options, data: newData(), calls: &callLog{}}
}

// Competitor returns a store on the same data that nothing is injected into
// and whose calls are not counted: for a writer that competes from a hook.
func (s *Store) Competitor() *Store {
	options := s.options
	options.Latency = 0
	return &Store{options: options, data: s.data, calls: &callLog{}}
}

// Transactional implements datastore.Store.
func (s *Store) Transactional() bool { return !s.options.NonTransactional }

// Close implements datastore.Store; there is nothing to release.
func (s *Store) Close() error { return nil }

// Read implements datastore.Store.
func (s *Store) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	var answers []datastore.Answer
	err := s.call(ctx, Call{Queries: queries}, func(Call) (err error) {
		answers, err = s.data.read(queries)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// Write implements datastore.Store. A store that is not transactional also
// returns the revisions of what it wrote before it failed.
func (s *Store) Write(ctx context.Context, steps ...datastore.Step) (datastore.Written, error) {
	if !s.Transactional() {
		return s.writeSteps(ctx, steps)
	}
	transaction, err := keyspace.Compile(s.options.Identify, steps...)
	if err != nil {
		return nil, fmt.Errorf("writing: %w", err)
	}
	if transaction.Empty() {
		return nil, nil
	}
	var written datastore.Written
	err = s.call(ctx, Call{Steps: steps}, func(Call) (err error) {
		written, err = s.data.apply(transaction)
		return err
	})
	if err != nil {
		return nil, err
	}
	return written, nil
}

func (s *Store) writeSteps(ctx context.Context, steps []datastore.Step) (datastore.Written, error) {
	// A mistake of the caller shows before anything is changed.
	for _, step := range steps {
		if _, err := keyspace.Compile(s.options.Identify, step); err != nil {
			return nil, fmt.Errorf("writing: %w", err)
		}
	}
	if (Call{Steps: steps}).Rounds() == 0 {
		return nil, nil
	}
	var written datastore.Written
	err := s.call(ctx, Call{Steps: steps}, func(call Call) (err error) {
		written, err = s.applySteps(ctx, call)
		return err
	})
	return written, err
}

// applySteps does what a store without transactions does. The mutations of a
// step are requests sent together: the failure of one does not keep the others
// from being applied.
func (s *Store) applySteps(ctx context.Context, call Call) (datastore.Written, error) {
	written := datastore.Written{}
	for index, step := range call.Steps {
		if err := s.calls.beforeStep(ctx, call, index); err != nil {
			return written, err
		}
		var failed error
		for _, mutation := range step {
			if mutation.Op == datastore.Expect {
				continue
			}
			if err := s.applyOne(mutation, written, index); err != nil && failed == nil {
				failed = err
			}
		}
		if failed != nil {
			return written, failed
		}
	}
	return written, nil
}

func (s *Store) applyOne(mutation datastore.Mutation, written datastore.Written, applied int) error {
	transaction, err := keyspace.Compile(s.options.Identify, datastore.Step{mutation})
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	revisions, err := s.data.apply(transaction)
	if conflict, ok := err.(*datastore.ConflictError); ok {
		// Such a server answers with an error, not with the object.
		return &datastore.ConflictError{Kind: conflict.Kind, Key: conflict.Key, Applied: applied}
	}
	for key, revision := range revisions {
		written[key] = revision
	}
	return err
}

// call carries out one call between its hooks.
func (s *Store) call(ctx context.Context, call Call, do func(Call) error) error {
	call = s.calls.begin(call)
	if err := s.expired(ctx, call); err != nil {
		return err
	}
	if err := s.calls.before(ctx, call); err != nil {
		return err
	}
	if err := s.wait(ctx, call); err != nil {
		return err
	}
	err := do(call)
	if lost := s.calls.after(ctx, call); lost != nil {
		return lost
	}
	return err
}

// wait takes as long as the call's round trips would.
func (s *Store) wait(ctx context.Context, call Call) error {
	if s.options.Latency == 0 {
		return s.expired(ctx, call)
	}
	rounds := 1
	if !s.Transactional() {
		rounds = call.Rounds()
	}
	timer := time.NewTimer(time.Duration(rounds) * s.options.Latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return s.expired(ctx, call)
	}
}

func (s *Store) expired(ctx context.Context, call Call) error {
	if ctx.Err() == nil {
		return nil
	}
	return &datastore.UnavailableError{Reason: datastore.Unreachable, Doing: call.String(), Err: context.Cause(ctx)}
}
