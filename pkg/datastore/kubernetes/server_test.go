package kubernetes

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/model"
)

// server answers in place of an API server as a test tells it to.
type server struct {
	*testing.T
	*httptest.Server
	caFile string

	mu       sync.Mutex
	answer   http.HandlerFunc
	requests []*http.Request
	bodies   []string
}

func newServer(t *testing.T, answer http.HandlerFunc) *server {
	t.Helper()
	return newNarrowServer(t, 0, answer)
}

// newNarrowServer takes so many requests at once on a connection; 0: the usual
// number.
func newNarrowServer(t *testing.T, streams int, answer http.HandlerFunc) *server {
	t.Helper()
	s := &server{T: t, answer: answer, caFile: filepath.Join(t.TempDir(), "ca.crt")}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Server.EnableHTTP2 = true
	s.Server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	s.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Server.StartTLS()
	t.Cleanup(func() {
		s.Server.CloseClientConnections()
		s.Server.Close()
	})
	s.write(s.caFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Server.Certificate().Raw})))
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
	answer := s.answer
	s.mu.Unlock()
	answer(w, r)
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *server) write(path, text string) {
	s.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// open returns a store that shows the server a token.
func (s *server) open(change ...func(*Options)) *Store {
	s.Helper()
	options := Options{Server: s.URL, CAFile: s.caFile, Token: "secret-1", Group: model.GroupV1}
	for _, c := range change {
		c(&options)
	}
	store, err := Open(s.ctx(), options)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = store.Close() })
	return store
}

func (s *server) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	s.Cleanup(cancel)
	return ctx
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int, reason, message string, details map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details,
	})
}

// handle is a handle as the server stores it.
func handle(w http.ResponseWriter, id, resourceVersion string) {
	fmt.Fprintf(w, `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMHandle","metadata":{"name":%q,"uid":"u1","resourceVersion":%q},
		"spec":{"handleID":%q,"block":{"10.77.3.64/26":1},"deleted":false}}`, id, resourceVersion, id)
}
