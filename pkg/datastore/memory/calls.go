package memory

import (
	"context"
	"errors"
	"strings"
	"sync"

	"calico-cni/pkg/datastore"
)

// Call is one Read or Write.
type Call struct {
	// Number counts the calls of the store from 1.
	Number int
	// Queries is what a Read asks; nil for a Write.
	Queries []datastore.Query
	// Steps is what a Write does; nil for a Read.
	Steps []datastore.Step
}

// IsWrite reports whether the call is a Write.
func (c Call) IsWrite() bool { return c.Queries == nil }

// Rounds is the number of requests, one after the other, that the call costs
// on an engine without transactions.
func (c Call) Rounds() int {
	if !c.IsWrite() {
		return 1
	}
	rounds := 0
	for _, step := range c.Steps {
		for _, mutation := range step {
			if mutation.Op != datastore.Expect {
				rounds++
				break
			}
		}
	}
	return rounds
}

// String names what the call is about, for messages and logs.
func (c Call) String() string {
	var objects []string
	for _, query := range c.Queries {
		objects = append(objects, query.String())
	}
	for _, step := range c.Steps {
		for _, mutation := range step {
			objects = append(objects, mutation.Key.String())
		}
	}
	verb := "reading "
	if c.IsWrite() {
		verb = "writing "
	}
	return verb + strings.Join(objects, ", ")
}

// Hooks run around every call, in the caller's goroutine and without a lock,
// so they may use Competitor to write in between. Any may be nil.
type Hooks struct {
	// Before runs before the call. Its error is returned instead, and nothing
	// is done.
	Before func(context.Context, Call) error
	// After runs when the call has been carried out. Its error is returned
	// instead of the answer: the answer is lost, what was written stays.
	After func(context.Context, Call) error
	// BeforeStep runs before each step of a Write on a store without
	// transactions. Its error ends the Write.
	BeforeStep func(ctx context.Context, call Call, step int) error
}

// LoseAnswer, returned by an After hook, is what an engine says when a write
// may have been applied; from a Before hook, when it was not applied either
// but the caller cannot know.
func LoseAnswer(call Call) error {
	return &datastore.UnavailableError{Reason: datastore.OutcomeUnknown, Doing: call.String(), Err: errors.New("answer lost")}
}

// Down is what an engine says when the datastore cannot be reached.
func Down(call Call) error {
	return &datastore.UnavailableError{Reason: datastore.Unreachable, Doing: call.String(), Err: errors.New("connection refused")}
}

// SetHooks replaces the hooks.
func (s *Store) SetHooks(hooks Hooks) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.calls.hooks = hooks
}

// Calls returns all calls so far, in the order in which they began.
func (s *Store) Calls() []Call {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return append([]Call(nil), s.calls.log...)
}

// Reads counts the Reads so far.
func (s *Store) Reads() int { return s.count(false) }

// Writes counts the Writes so far.
func (s *Store) Writes() int { return s.count(true) }

func (s *Store) count(writes bool) int {
	count := 0
	for _, call := range s.Calls() {
		if call.IsWrite() == writes {
			count++
		}
	}
	return count
}

// Rounds counts what the calls so far cost: round trips on a transactional
// store, requests one after the other on any other.
func (s *Store) Rounds() int {
	rounds := 0
	for _, call := range s.Calls() {
		if s.Transactional() {
			rounds++
		} else {
			rounds += call.Rounds()
		}
	}
	return rounds
}

// ForgetCalls empties the log of calls.
func (s *Store) ForgetCalls() {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.calls.log = nil
}

type callLog struct {
	mu    sync.Mutex
	hooks Hooks
	log   []Call
	last  int
}

func (l *callLog) begin(call Call) Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	call.Number = l.last
	l.log = append(l.log, call)
	return call
}

func (l *callLog) current() Hooks {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hooks
}

func (l *callLog) before(ctx context.Context, call Call) error {
	if hook := l.current().Before; hook != nil {
		return hook(ctx, call)
	}
	return nil
}

func (l *callLog) after(ctx context.Context, call Call) error {
	if hook := l.current().After; hook != nil {
		return hook(ctx, call)
	}
	return nil
}

func (l *callLog) beforeStep(ctx context.Context, call Call, step int) error {
	if hook := l.current().BeforeStep; hook != nil {
		return hook(ctx, call, step)
	}
	return nil
}
