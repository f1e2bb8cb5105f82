package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// TestDiscovery is datastore contract 1.1.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	for groups, want := range map[string]model.APIGroup{
		`{"groups":[{"name":"apps"},{"name":"crd.projectcalico.org"}]}`:              model.GroupV1,
		`{"groups":[{"name":"apps"},{"name":"projectcalico.org"}]}`:                  model.GroupV3,
		`{"groups":[{"name":"projectcalico.org"},{"name":"crd.projectcalico.org"}]}`: model.GroupV1,
		`{"groups":[]}`: model.GroupV1,
		`nonsense`:      model.GroupV1,
	} {
		s := newServer(t, nil)
		s.answer = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apis" {
				fmt.Fprint(w, groups)
				return
			}
			if !strings.HasPrefix(r.URL.Path, "/apis/"+string(want)+"/") {
				t.Errorf("%s: asked for %s", groups, r.URL.Path)
			}
			handle(w, key.ID, "2")
		}
		store := s.open(func(o *Options) { o.Group = "" })
		for range 2 {
			if _, err := store.Read(s.ctx(), datastore.Get{Key: key}); err != nil {
				t.Errorf("%s: %v", groups, err)
			}
		}
		if asks := s.count(); groups != "nonsense" && asks != 3 {
			t.Errorf("%s: %d requests, want one question and two reads", groups, asks)
		}
	}
}

func TestGroupNamed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]model.APIGroup{
		"": "", "projectcalico.org/v3": model.GroupV3, "ProjectCalico.org/V3": model.GroupV3,
		"crd.projectcalico.org/v1": model.GroupV1, "anything": model.GroupV1,
	} {
		if group := GroupNamed(name); group != want {
			t.Errorf("%q: %q, want %q", name, group, want)
		}
	}
}

// TestOneRequestPerObject: a pod and its endpoint are one object.
func TestOneRequestPerObject(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"5"},"spec":{"nodeName":"n1"}}`)
	})
	pod := model.ResourceKey{Kind: model.KindPod, Namespace: "shop", Name: "web-0"}
	endpoint := model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: "n1-k8s-web--0-eth0"}
	prefix := datastore.ListResources{Kind: model.KindWorkloadEndpoint, Namespace: "shop", NamePrefix: "n1-k8s-web--0-"}
	elsewhere := prefix
	elsewhere.NamePrefix = "n2-k8s-web--0-"
	answers, err := s.open().Read(s.ctx(), datastore.Get{Key: pod}, datastore.Get{Key: endpoint}, prefix, elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 1, 1, 0} {
		if found := len(answers[i].Entries); found != want {
			t.Errorf("answer %d has %d entries, want %d", i, found, want)
		}
	}
	if value, _ := datastore.One[model.WorkloadEndpoint](answers[2]); value == nil || value.Spec.InterfaceName != "calia4fc3c48bd8" {
		t.Errorf("endpoint %+v", value)
	}
	if s.count() != 1 {
		t.Errorf("%d requests", s.count())
	}
}

// TestOneConnection: a batch goes over one HTTP/2 connection.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("spoken to in %s", r.Proto)
		}
		refuse(w, 404, "NotFound", "", map[string]any{"name": "x"})
	})
	queries := make([]datastore.Query, 150)
	for i := range queries {
		queries[i] = datastore.Get{Key: model.HandleKey{ID: fmt.Sprintf("net.%d", i)}}
	}
	if _, err := s.open().Read(s.ctx(), queries...); err != nil {
		t.Fatal(err)
	}
	connections := map[string]bool{}
	for _, request := range s.requests {
		connections[request.RemoteAddr] = true
	}
	if len(connections) != 1 || len(s.requests) != len(queries) {
		t.Errorf("%d requests on %d connections", len(s.requests), len(connections))
	}
}

// TestMoreThanAConnectionTakes: what the server does not take at once waits for
// its turn, from one caller and from several.
func TestMoreThanAConnectionTakes(t *testing.T) {
	t.Parallel()
	s := newNarrowServer(t, inFlight, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, 404, "NotFound", "", map[string]any{"name": "x"})
	})
	queries := make([]datastore.Query, 60)
	for i := range queries {
		queries[i] = datastore.Get{Key: model.HandleKey{ID: fmt.Sprintf("net.%d", i)}}
	}
	store := s.open()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			if _, err := store.Read(s.ctx(), queries...); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
}

// TestNobodyListens: nothing was written, and the error says so.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	s.Server.Close()
	store := s.open()
	_, readErr := store.Read(s.ctx(), datastore.Get{Key: key})
	_, writeErr := store.Write(s.ctx(), datastore.Step{datastore.Put(key, &model.Handle{}, datastore.Absent)})
	for _, err := range []error{readErr, writeErr} {
		if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != datastore.Unreachable || !strings.Contains(err.Error(), s.URL) {
			t.Errorf("failed with %v", err)
		}
	}
}

// TestNoAnswer: the deadline ends the call; a write may have been done.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	store := s.open()
	for name, call := range map[string]func(context.Context) error{
		"read": func(ctx context.Context) error {
			_, err := store.Read(ctx, datastore.Get{Key: key})
			return err
		},
		"write": func(ctx context.Context) error {
			_, err := store.Write(ctx, datastore.Step{datastore.Put(key, &model.Handle{}, datastore.Absent)})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(s.Context(), 300*time.Millisecond)
		began := time.Now()
		err := call(ctx)
		cancel()
		want := datastore.Unreachable
		if name == "write" {
			want = datastore.OutcomeUnknown
		}
		if !errors.Is(err, context.DeadlineExceeded) || datastore.ReasonOf(err) != want || time.Since(began) > 3*time.Second {
			t.Errorf("the %s ended after %v with %v", name, time.Since(began), err)
		}
	}
}

// TestExpiredList begins again.
func TestExpiredList(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("continue") == "":
			fmt.Fprint(w, `{"metadata":{"continue":"more"},"items":[{"metadata":{"name":"10-77-0-0-26","uid":"u","resourceVersion":"1"}}]}`)
		case s.count() == 2:
			refuse(w, 410, "Expired", "The provided continue parameter is too old", nil)
		default:
			fmt.Fprint(w, `{"metadata":{},"items":[{"metadata":{"name":"10-77-0-64-26","uid":"u","resourceVersion":"1"}}]}`)
		}
	}
	answers, err := s.open().Read(s.ctx(), datastore.ListBlocks{Family: model.IPv4, KeysOnly: true})
	if err != nil || len(answers[0].Entries) != 2 || s.count() != 4 {
		t.Errorf("%d requests, %v, %v", s.count(), answers, err)
	}
}

// TestNotOursToWrite: mistakes, not failures.
func TestNotOursToWrite(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	for _, mutation := range []datastore.Mutation{
		datastore.Remove(model.ResourceKey{Kind: model.KindNode, Name: "n1"}, datastore.Any),
		datastore.Remove(model.ResourceKey{Kind: model.KindPod, Namespace: "a", Name: "b"}, datastore.Any),
		datastore.Put(model.ResourceKey{Kind: model.KindProfile, Name: "net"}, model.NewProfile("net", true), datastore.Absent),
		datastore.Remove(model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "a", Name: "n1-cni-3f9c-eth0"}, datastore.Any),
	} {
		if _, err := s.open().Write(s.ctx(), datastore.Step{mutation}); err == nil || errors.Is(err, datastore.ErrUnavailable) {
			t.Errorf("%s: %v", mutation.Key, err)
		}
	}
	if s.count() != 0 {
		t.Errorf("%d requests", s.count())
	}
}
