package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// operation is something that a process of the automaton may do: a verb of the
// product as it is, or what another program does.
type operation struct {
	name string
	// container is whose addresses are given or taken back; empty: nobody's.
	container string
	host      string
	kind      operationKind
	run       func(ctx context.Context, store datastore.Store, a *Allocator) ([]netip.Prefix, error)
	// once: it happens at most once in a history.
	once bool
}

type operationKind int

const (
	adding operationKind = iota
	deleting
	releasing
	// foreignWork is another program's.
	foreignWork
)

// reply is what a process was told, and which of several requests that were
// sent together it was told about.
type reply struct {
	asked   request
	pick    int
	answers []datastore.Answer
	written datastore.Written
	err     error
	text    []word
}

// process is one process at work. What it does is a function of what it was
// told, so the replies are its whole state.
type process struct {
	// operation is an index; idle has none.
	operation int
	replies   []reply
	// lost counts the races that it has lost.
	lost int
	// asks is the request that it waits with.
	asks request
}

const idle = -1

// leaves reports whether a death now leaves anything that a death before the
// last request would not have left.
func (p *process) leaves() bool {
	last := p.replies[len(p.replies)-1]
	return len(p.replies) == 1 || last.err == nil && len(last.asked.queries) == 0
}

// request is a read, or writes that are on their way together: one transaction
// or, without transactions, single changes of which any may come first.
type request struct {
	queries []datastore.Query
	steps   []datastore.Step
	choices []datastore.Mutation
}

func (r request) String() string {
	var objects []string
	for _, query := range r.queries {
		objects = append(objects, "read "+query.String())
	}
	for _, step := range r.steps {
		for _, m := range step {
			objects = append(objects, describeMutation(m))
		}
	}
	for _, m := range r.choices {
		objects = append(objects, describeMutation(m))
	}
	return strings.Join(objects, ", ")
}

func describeMutation(m datastore.Mutation) string {
	return [...]string{"create ", "update ", "delete ", "expect "}[m.Op] + m.Key.String()
}

// errSuspended ends the replay of a process that knows no more.
var errSuspended = errors.New("the process waits for an answer")

// replay is the datastore as a process sees it that is run again from its
// start: it tells what it has told, and then ends the run.
type replay struct {
	transactional bool
	replies       []reply
	asks          request
	suspended     bool
}

func (r *replay) Transactional() bool { return r.transactional }

func (r *replay) Close() error { return nil }

// next is the reply to a request; without one the process is suspended.
func (r *replay) next(asks request) (reply, bool) {
	if r.suspended || len(r.replies) == 0 {
		if !r.suspended {
			r.asks = asks
		}
		r.suspended = true
		return reply{}, false
	}
	told := r.replies[0]
	r.replies = r.replies[1:]
	return told, true
}

func (r *replay) Read(_ context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	told, ok := r.next(request{queries: queries})
	if !ok {
		return nil, errSuspended
	}
	return told.answers, told.err
}

func (r *replay) Write(_ context.Context, steps ...datastore.Step) (datastore.Written, error) {
	if r.transactional {
		told, ok := r.next(request{steps: steps})
		if !ok {
			return nil, errSuspended
		}
		return told.written, told.err
	}
	all := datastore.Written{}
	for _, step := range steps {
		if err := r.writeStep(step, all); err != nil {
			return all, err
		}
	}
	return all, nil
}

// writeStep sends the changes of a step together: they arrive in any order, and
// the failure of one keeps none of the others.
func (r *replay) writeStep(step datastore.Step, all datastore.Written) error {
	left := slices.DeleteFunc(slices.Clone(step), func(m datastore.Mutation) bool { return m.Op == datastore.Expect })
	var failed error
	for len(left) > 0 {
		told, ok := r.next(request{choices: left})
		if !ok {
			return errSuspended
		}
		for key, revision := range told.written {
			all[key] = revision
		}
		if failed == nil {
			failed = told.err
		}
		left = slices.Delete(slices.Clone(left), told.pick, told.pick+1)
	}
	return failed
}

// resume runs a process again with all that it was told, until it asks for
// more. It reports what came out if it asks for nothing.
func (m *automaton) resume(p *process) (addresses []netip.Prefix, ended bool, err error) {
	store := &replay{transactional: !m.options.NonTransactional, replies: p.replies}
	a := New(store, Options{Now: m.clock.Now})
	a.pause = func(context.Context, int) error { return nil }
	addresses, err = m.operations[p.operation].run(context.Background(), store, a)
	p.asks = store.asks
	return addresses, !store.suspended, err
}

// addTo is an ADD of some addresses for a container.
func addTo(host, container string, count int) operation {
	return operation{name: fmt.Sprintf("ADD %s (%d)", container, count), container: container, host: host, kind: adding,
		run: func(ctx context.Context, _ datastore.Store, a *Allocator) ([]netip.Prefix, error) {
			result, err := a.Assign(ctx, Request{
				Host: host, HandleID: container, Count4: count, Use: model.UseWorkload, Attributes: map[string]string{"node": host},
			})
			return result.IPv4.Addresses, err // fewer than wanted are kept
		}}
}

func takeFrom(host, container string) operation {
	return operation{name: "DEL " + container, container: container, host: host, kind: deleting,
		run: func(ctx context.Context, _ datastore.Store, a *Allocator) ([]netip.Prefix, error) {
			return nil, a.ReleaseByHandle(ctx, container)
		}}
}

// leave is the end of a host's claims.
func leave(host string) operation {
	return operation{name: "release of the blocks of " + host, host: host, kind: releasing,
		run: func(ctx context.Context, _ datastore.Store, a *Allocator) ([]netip.Prefix, error) {
			return nil, a.ReleaseHostAffinities(ctx, model.AffinityHost, host, false)
		}}
}
