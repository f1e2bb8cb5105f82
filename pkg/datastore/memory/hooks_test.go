package memory_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

var (
	a   = model.HandleKey{ID: "net.a"}
	b   = model.HandleKey{ID: "net.b"}
	put = datastore.Step{datastore.Put(a, &model.Handle{}, datastore.Absent)}
)

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func exists(store *memory.Store, key model.Key) bool {
	_, ok := store.Raw(key.Path())
	return ok
}

func TestFaultBefore(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
	_, err := store.Write(within(t, time.Minute), put)
	if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != datastore.Unreachable || exists(store, a) {
		t.Errorf("failed with %v, applied: %v", err, exists(store, a))
	}
}

func TestAnswerLost(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	store.SetHooks(memory.Hooks{After: func(_ context.Context, call memory.Call) error { return memory.LoseAnswer(call) }})
	_, err := store.Write(within(t, time.Minute), put)
	if datastore.ReasonOf(err) != datastore.OutcomeUnknown || !exists(store, a) {
		t.Errorf("failed with %v, applied: %v", err, exists(store, a))
	}
}

// TestCompetitor has another writer come in between.
func TestCompetitor(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{})
	store.SetHooks(memory.Hooks{Before: func(ctx context.Context, call memory.Call) error {
		_, err := store.Competitor().Write(ctx, put)
		return err
	}})
	if _, err := store.Write(within(t, time.Minute), put); !errors.Is(err, datastore.ErrExists) {
		t.Errorf("failed with %v, want that it exists already", err)
	}
	if calls := store.Calls(); len(calls) != 1 || calls[0].Number != 1 || !calls[0].IsWrite() {
		t.Errorf("calls %v", calls)
	}
}

// TestStepsCutOff kills the connection between the steps of a write.
func TestStepsCutOff(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{NonTransactional: true})
	store.SetHooks(memory.Hooks{BeforeStep: func(_ context.Context, call memory.Call, step int) error {
		if step == 1 {
			return memory.LoseAnswer(call)
		}
		return nil
	}})
	written, err := store.Write(within(t, time.Minute), put, datastore.Step{datastore.Put(b, &model.Handle{}, datastore.Absent)})
	if datastore.ReasonOf(err) != datastore.OutcomeUnknown || !exists(store, a) || exists(store, b) {
		t.Errorf("failed with %v", err)
	}
	if written[a] == datastore.Absent || len(written) != 1 {
		t.Errorf("written before the failure: %v", written)
	}
}

// TestStepIsSentTogether: on an engine without transactions, the failure of
// one mutation of a step does not keep the others from being applied.
func TestStepIsSentTogether(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{NonTransactional: true})
	store.Plant(a.Path(), `{}`)
	both := datastore.Step{put[0], datastore.Put(b, &model.Handle{}, datastore.Absent)}
	_, err := store.Write(within(t, time.Minute), both)
	var conflict *datastore.ConflictError
	if !errors.As(err, &conflict) || conflict.Key != a || conflict.Applied != 0 || conflict.Current != nil || !exists(store, b) {
		t.Errorf("failed with %+v, the other applied: %v", err, exists(store, b))
	}
}

func TestRounds(t *testing.T) {
	t.Parallel()
	guard := datastore.Step{datastore.Guard(b, datastore.Absent)}
	for _, row := range []struct {
		nonTransactional bool
		want             int
	}{{false, 2}, {true, 3}} {
		store := memory.New(memory.Options{NonTransactional: row.nonTransactional})
		if _, err := store.Read(within(t, time.Minute), datastore.ListHandles{}, datastore.Get{Key: a}); err != nil {
			t.Fatal(err)
		}
		remove := datastore.Step{datastore.Remove(b, datastore.Any)}
		if _, err := store.Write(within(t, time.Minute), put, guard, remove); err != nil {
			t.Fatal(err)
		}
		if store.Rounds() != row.want || store.Reads() != 1 || store.Writes() != 1 {
			t.Errorf("non-transactional %v: %d rounds, want %d", row.nonTransactional, store.Rounds(), row.want)
		}
		store.ForgetCalls()
		if store.Rounds() != 0 {
			t.Error("forgotten calls are counted")
		}
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{Latency: time.Hour})
	_, err := store.Write(within(t, 10*time.Millisecond), put)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, datastore.ErrUnavailable) || exists(store, a) {
		t.Errorf("failed with %v, applied: %v", err, exists(store, a))
	}
	quick := memory.New(memory.Options{Latency: time.Millisecond})
	if _, err := quick.Write(within(t, time.Minute), put); err != nil {
		t.Error(err)
	}
}

func TestDump(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile("../../model/testdata/cluster.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New(memory.Options{})
	if err := store.Load(strings.NewReader(string(reference))); err != nil {
		t.Fatal(err)
	}
	store.Plant("/calico/empty", "")
	store.Plant("/calico/odd", "no JSON")
	again := memory.New(memory.Options{})
	if err := again.Load(strings.NewReader(store.Dump())); err != nil {
		t.Fatal(err)
	}
	if again.Dump() != store.Dump() {
		t.Errorf("dumped %s\nloaded and dumped %s", store.Dump(), again.Dump())
	}
	for path, want := range map[string]string{"/calico/empty": "", "/calico/odd": "no JSON"} {
		if value, ok := again.Raw(path); !ok || value != want {
			t.Errorf("%s: %q, %v", path, value, ok)
		}
	}
	for _, path := range again.Paths() {
		again.Uproot(path)
	}
	if again.Dump() != "" {
		t.Errorf("after everything was removed: %s", again.Dump())
	}
	if err := again.Load(strings.NewReader(`{"key":`)); err == nil {
		t.Error("half a dump was loaded")
	}
}

func TestGivenIdentity(t *testing.T) {
	t.Parallel()
	store := memory.New(memory.Options{Identify: func(m *model.Metadata) { m.UID = "uid-of-" + m.Name }})
	key := model.ResourceKey{Kind: model.KindNode, Name: "n1"}
	node := &model.Node{Metadata: model.Metadata{Name: "n1"}}
	if _, err := store.Write(within(t, time.Minute), datastore.Step{datastore.Put(key, node, datastore.Absent)}); err != nil {
		t.Fatal(err)
	}
	want := `{"key":"/calico/resources/v3/projectcalico.org/nodes/n1","value":{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"n1","uid":"uid-of-n1"},"spec":{}}}` + "\n"
	if dump := store.Dump(); dump != want {
		t.Errorf("dump %s, want %s", dump, want)
	}
}
