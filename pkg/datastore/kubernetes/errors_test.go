package kubernetes

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

var key = model.HandleKey{ID: "net.a"}

// answers are the rows of datastore contract 5: what the server says, and what
// a write and a read make of it. A nil error means success (of a read: absent).
var answers = map[string]struct {
	code            int
	reason, message string
	details         map[string]any
	write, read     error
	why             datastore.Reason // of an unavailable datastore, for the write
	text            string
}{
	"exists":    {409, "AlreadyExists", "exists", nil, datastore.ErrExists, datastore.ErrUnavailable, 0, ""},
	"conflict":  {409, "Conflict", "ResourceVersion in precondition: 1, ResourceVersion in object meta: 2", nil, datastore.ErrConflict, datastore.ErrUnavailable, 0, ""},
	"other one": {409, "Conflict", "UID in precondition: a, UID in object meta: b", nil, datastore.ErrNotFound, nil, 0, ""},
	"absent":    {404, "NotFound", "not found", map[string]any{"name": "net.a"}, datastore.ErrNotFound, nil, 0, ""},
	"no CRD":    {404, "NotFound", "the server could not find the requested resource", map[string]any{}, datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.Undefined, "ipamhandles.crd.projectcalico.org"},
	"invalid, UID": {422, "Invalid", "immutable", map[string]any{"causes": []any{map[string]any{"field": "metadata.uid"}}},
		datastore.ErrNotFound, nil, 0, ""},
	"invalid, revision": {422, "Invalid", "stale", map[string]any{"causes": []any{map[string]any{"field": "metadata.resourceVersion"}}},
		datastore.ErrConflict, datastore.ErrUnavailable, 0, ""},
	"invalid, both": {422, "Invalid", "wrong", map[string]any{"causes": []any{map[string]any{"field": "metadata.uid"}, map[string]any{"field": "metadata.resourceVersion"}}},
		datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.Unreachable, "wrong"},
	"invalid": {422, "Invalid", "spec.block is required", map[string]any{"causes": []any{map[string]any{"field": "spec.block"}}},
		datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.Unreachable, "spec.block is required"},
	"forbidden":   {403, "Forbidden", "User x cannot", nil, datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.Refused, "ipamhandles.crd.projectcalico.org"},
	"not known":   {401, "Unauthorized", "Unauthorized", nil, datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.Refused, "credentials"},
	"broken":      {500, "InternalError", "etcd is slow", nil, datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.OutcomeUnknown, "etcd is slow"},
	"overloaded":  {503, "ServiceUnavailable", "starting", nil, datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.OutcomeUnknown, "503"},
	"timed out":   {504, "Timeout", "late", nil, datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.OutcomeUnknown, "late"},
	"bad request": {400, "BadRequest", "no", nil, datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.Unreachable, "400"},
	"redirect":    {302, "", "", nil, datastore.ErrUnavailable, datastore.ErrUnavailable, datastore.Unreachable, "302"},
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, row := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "https://192.0.2.1/")
				refuse(w, row.code, row.reason, row.message, row.details)
			})
			store := s.open()
			_, err := store.Write(s.ctx(), datastore.Step{datastore.Put(key, &model.Handle{}, "1@u1")})
			check(t, "write", err, row.write)
			if errors.Is(err, datastore.ErrUnavailable) && datastore.ReasonOf(err) != row.why {
				t.Errorf("the write failed with reason %d, want %d: %v", datastore.ReasonOf(err), row.why, err)
			}
			if !strings.Contains(err.Error(), row.text) || !strings.Contains(err.Error(), key.String()) {
				t.Errorf("the error %q does not name %s and %q", err, key, row.text)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells the token: %v", err)
			}
			_, err = store.Read(s.ctx(), datastore.Get{Key: key})
			check(t, "read", err, row.read)
			if err != nil && datastore.ReasonOf(err) == datastore.OutcomeUnknown {
				t.Errorf("a read with an unknown outcome: %v", err)
			}
		})
	}
}

func check(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Errorf("the %s ended with %v, want %v", what, err, want)
	}
}

func TestForbiddenNamesVerbAndResource(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 403, "Forbidden", "no", nil) })
	store := s.open()
	_, err := store.Read(s.ctx(), datastore.ListAffinities{Type: model.AffinityHost, Host: "n1", Family: model.IPv4})
	if err == nil || !strings.Contains(err.Error(), "list blockaffinities.crd.projectcalico.org") {
		t.Errorf("list: %v", err)
	}
	endpoint := model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: "n1-k8s-web-eth0"}
	_, err = store.Write(s.ctx(), datastore.Step{datastore.Remove(endpoint, "1@u")})
	if err == nil || !strings.Contains(err.Error(), "patch pods/status") {
		t.Errorf("patch: %v", err)
	}
}

// TestSlowDown: 429 is waited out, for reads and writes, as long as there is
// time.
func TestSlowDown(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		if s.count()%2 == 1 {
			w.Header().Set("Retry-After", "1")
			refuse(w, 429, "TooManyRequests", "storage is (re)initializing", nil)
			return
		}
		handle(w, key.ID, "2")
	}
	store := s.open()
	began := time.Now()
	if _, err := store.Read(s.ctx(), datastore.Get{Key: key}); err != nil {
		t.Error(err)
	}
	if written, err := store.Write(s.ctx(), datastore.Step{datastore.Put(key, &model.Handle{}, "1@u1")}); err != nil || written[key] != "2@u1" {
		t.Errorf("%v, %v", written, err)
	}
	if waited := time.Since(began); waited < 2*time.Second || s.count() != 4 {
		t.Errorf("%d requests in %v", s.count(), waited)
	}
}

func TestSlowDownBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		refuse(w, 429, "TooManyRequests", "busy", nil)
	})
	began := time.Now()
	_, err := s.open().Write(s.ctx(), datastore.Step{datastore.Put(key, &model.Handle{}, "1@u1")})
	if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != datastore.Unreachable || !strings.Contains(err.Error(), "30s") {
		t.Errorf("failed with %v", err)
	}
	if waited := time.Since(began); waited > 5*time.Second {
		t.Errorf("it waited %v for nothing", waited)
	}
}

// TestReadsAreRepeatedOnce, writes never.
func TestReadsAreRepeatedOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	fail := 1
	s.answer = func(w http.ResponseWriter, _ *http.Request) {
		if s.count() <= fail {
			refuse(w, 500, "InternalError", "once", nil)
			return
		}
		handle(w, key.ID, "2")
	}
	store := s.open()
	if _, err := store.Read(s.ctx(), datastore.Get{Key: key}); err != nil || s.count() != 2 {
		t.Errorf("%d requests, %v", s.count(), err)
	}
	fail = 100
	if _, err := store.Read(s.ctx(), datastore.Get{Key: key}); err == nil || s.count() != 4 {
		t.Errorf("%d requests, %v", s.count(), err)
	}
	if _, err := store.Write(s.ctx(), datastore.Step{datastore.Put(key, &model.Handle{}, "1@u1")}); err == nil || s.count() != 5 {
		t.Errorf("%d requests, %v", s.count(), err)
	}
}
