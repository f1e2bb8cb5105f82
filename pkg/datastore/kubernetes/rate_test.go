package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func rated(qps float32, burst int) func(*Options) {
	return func(o *Options) { o.QPS, o.Burst = qps, burst }
}

// TestRate: the first requests go out at once, the others one by one.
func TestRate(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { handle(w, key.ID, "2") })
	queries := make([]datastore.Query, 7)
	for i := range queries {
		queries[i] = datastore.Get{Key: model.HandleKey{ID: key.ID + strings.Repeat("x", i)}}
	}
	store, began := s.open(rated(20, 3)), time.Now()
	_, _ = store.Read(s.ctx(), queries...) // the answers are another handle's
	if s.count() != len(queries) {
		t.Errorf("%d requests, want %d", s.count(), len(queries))
	}
	if took := time.Since(began); took < 4*time.Second/20-time.Millisecond {
		t.Errorf("7 requests took %v, but only 3 may go out at once and then 20 a second", took)
	}
}

// TestRateLeavesNoTime: what cannot be sent before the deadline is not waited
// for, and was certainly not done.
func TestRateLeavesNoTime(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { handle(w, key.ID, "2") })
	store, get := s.open(rated(0.001, 0)), datastore.Get{Key: key}
	if _, err := store.Read(s.ctx(), get); err != nil {
		t.Fatal(err)
	}
	_, reading := store.Read(s.ctx(), get)
	_, writing := store.Write(s.ctx(), datastore.Step{datastore.Put(key, &model.Handle{}, datastore.Absent)})
	for _, err := range []error{reading, writing} {
		if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != datastore.Unreachable || !strings.Contains(err.Error(), "raise qps and burst") {
			t.Errorf("failed with %v", err)
		}
	}
	if s.count() != 1 {
		t.Errorf("%d requests were sent", s.count())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(errors.New("the verb was given up")) })
	if _, err := store.Read(ctx, get); err == nil || !strings.Contains(err.Error(), "the verb was given up") {
		t.Errorf("failed with %v", err)
	}
}

func TestUnlimit(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { handle(w, key.ID, "2") })
	store := s.open(rated(0.001, 1))
	store.Unlimit()
	for range 20 {
		if _, err := store.Read(s.ctx(), datastore.Get{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRateOfOneStore: repeated requests count, and another store's do not.
func TestRateOfOneStore(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusInternalServerError, "InternalError", "no", nil)
	})
	for _, want := range []int{1, 2} {
		if _, err := s.open(rated(0.001, 1)).Read(s.ctx(), datastore.Get{Key: key}); err == nil || !strings.Contains(err.Error(), "raise qps") {
			t.Errorf("failed with %v", err)
		}
		if s.count() != want {
			t.Errorf("%d requests, want %d", s.count(), want)
		}
	}
}
