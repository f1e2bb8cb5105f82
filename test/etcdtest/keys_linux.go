package etcdtest

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Client connects to a server without TLS until the test ends.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // nothing is left to be lost
	return client
}

// Wipe removes all keys.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	if _, err := s.Client(t).Delete(deadline(t), "", clientv3.WithPrefix()); err != nil {
		t.Fatalf("wiping the etcd server: %v", err)
	}
}

// Put stores a raw value.
func (s *Server) Put(t testing.TB, key, value string) {
	t.Helper()
	if _, err := s.Client(t).Put(deadline(t), key, value); err != nil {
		t.Fatalf("putting %s: %v", key, err)
	}
}

// Get returns all keys that begin so, and their values.
func (s *Server) Get(t testing.TB, prefix string) map[string]string {
	t.Helper()
	response, err := s.Client(t).Get(deadline(t), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatalf("getting %s: %v", prefix, err)
	}
	values := map[string]string{}
	for _, record := range response.Kvs {
		values[string(record.Key)] = string(record.Value)
	}
	return values
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}
