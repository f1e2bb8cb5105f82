package datastore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

var (
	a = model.HandleKey{ID: "net.a"}
	b = model.HandleKey{ID: "net.b"}
)

func TestErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	unavailable := fmt.Errorf("adding: %w", &datastore.UnavailableError{Reason: datastore.OutcomeUnknown, Doing: "writing handle net.a", Err: cause})
	if !errors.Is(unavailable, datastore.ErrUnavailable) || !errors.Is(unavailable, cause) || errors.Is(unavailable, datastore.ErrConflict) {
		t.Errorf("%v does not wrap what it should", unavailable)
	}
	if want := "adding: datastore unavailable: writing handle net.a: connection refused"; unavailable.Error() != want {
		t.Errorf("text %q, want %q", unavailable, want)
	}
	for err, want := range map[error]datastore.Reason{
		unavailable:              datastore.OutcomeUnknown,
		datastore.ErrUnavailable: datastore.Unreachable,
		cause:                    datastore.Unreachable,
	} {
		if reason := datastore.ReasonOf(err); reason != want {
			t.Errorf("%v: reason %d, want %d", err, reason, want)
		}
	}
	for _, kind := range []error{datastore.ErrConflict, datastore.ErrExists, datastore.ErrNotFound} {
		err := fmt.Errorf("adding: %w", &datastore.ConflictError{Kind: kind, Key: a})
		if !errors.Is(err, kind) || err.Error() != fmt.Sprintf("adding: handle net.a %v", kind) {
			t.Errorf("%v", err)
		}
	}
}

func TestMutations(t *testing.T) {
	t.Parallel()
	value := &model.Handle{}
	for name, row := range map[string]struct{ made, want datastore.Mutation }{
		"create": {datastore.Put(a, value, datastore.Absent), datastore.Mutation{Op: datastore.Create, Key: a, Value: value}},
		"update": {datastore.Put(a, value, "7"), datastore.Mutation{Op: datastore.Update, Key: a, Value: value, Revision: "7"}},
		"delete": {datastore.Remove(a, "7"), datastore.Mutation{Op: datastore.Delete, Key: a, Revision: "7"}},
		"expect": {datastore.Guard(a, datastore.Absent), datastore.Mutation{Op: datastore.Expect, Key: a}},
	} {
		if row.made != row.want {
			t.Errorf("%s: %+v, want %+v", name, row.made, row.want)
		}
	}
}

// TestPrefetch counts what reaches the store.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	store.Plant(a.Path(), `{"block":{}}`)
	getA, getB, list := datastore.Get{Key: a}, datastore.Get{Key: b}, datastore.ListHandles{}
	ctx := context.Background()
	own, held, err := datastore.Prefetch(ctx, store, []datastore.Query{list, getA}, []datastore.Query{getA, getB, getA})
	if err != nil {
		t.Fatal(err)
	}
	if len(own) != 2 || len(own[0].Entries) != 1 || len(own[1].Entries) != 1 {
		t.Errorf("own answers %v", own)
	}
	if calls := store.Calls(); len(calls) != 1 || len(calls[0].Queries) != 3 {
		t.Errorf("calls %v, want one with three queries", calls)
	}
	for i, row := range []struct {
		queries []datastore.Query
		reads   int // in all
	}{
		{[]datastore.Query{getA, list}, 2}, // a mixture is read as a whole
		{[]datastore.Query{getA}, 2},
		{[]datastore.Query{getA}, 3}, // once only
		{[]datastore.Query{getB}, 3},
		{[]datastore.Query{list}, 4}, // was not held
	} {
		answers, err := held.Read(ctx, row.queries...)
		if err != nil || len(answers) != len(row.queries) {
			t.Errorf("read %d: %v, %v", i, answers, err)
		}
		if store.Reads() != row.reads {
			t.Errorf("after read %d the store was read %d times, want %d", i, store.Reads(), row.reads)
		}
	}
	if _, err := held.Write(ctx, datastore.Step{datastore.Remove(a, datastore.Any)}); err != nil || store.Writes() != 1 {
		t.Errorf("a write did not reach the store: %v", err)
	}
}

func TestPrefetchFails(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
	_, _, err := datastore.Prefetch(context.Background(), store, nil, []datastore.Query{datastore.ListHandles{}})
	if !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("failed with %v", err)
	}
}

// TestRemember: what was read is given once more, as far as there is room.
func TestRemember(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	store.Plant(a.Path(), `{"block":{}}`)
	getA, getB, list := datastore.Get{Key: a}, datastore.Get{Key: b}, datastore.ListHandles{}
	ctx := context.Background()
	remembering := datastore.Remember(store, 2)
	for _, queries := range [][]datastore.Query{{getA}, {getB, list}, {list}} {
		if _, err := remembering.Read(ctx, queries...); err != nil {
			t.Fatal(err)
		}
	}
	if store.Reads() != 3 {
		t.Errorf("the store was read %d times, want 3: a Memory answers nothing itself", store.Reads())
	}
	replay := remembering.Replay()
	for i, row := range []struct {
		queries []datastore.Query
		reads   int // in all
	}{
		{[]datastore.Query{getB, list}, 4}, // there was no room for both
		{[]datastore.Query{getA, list}, 4},
		{[]datastore.Query{getA}, 5}, // once only
	} {
		answers, err := replay.Read(ctx, row.queries...)
		if err != nil || len(answers) != len(row.queries) {
			t.Errorf("read %d: %v, %v", i, answers, err)
		}
		if store.Reads() != row.reads {
			t.Errorf("after read %d the store was read %d times, want %d", i, store.Reads(), row.reads)
		}
	}
	if _, err := replay.Write(ctx, datastore.Step{datastore.Remove(a, datastore.Any)}); err != nil || store.Writes() != 1 {
		t.Errorf("a write did not reach the store: %v", err)
	}
	store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
	if _, err := remembering.Read(ctx, getB); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("failed with %v", err)
	}
}
