package etcd

import (
	"context"
	"os"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/contracttest"
	"calico-cni/pkg/datastore/keyspace"
	"calico-cni/pkg/model"
	"calico-cni/test/etcdtest"
)

// shared is the server of the tests that need no server of their own.
var shared *etcdtest.Server

func TestMain(m *testing.M) {
	os.Exit(etcdtest.Main(m, func(server *etcdtest.Server) { shared = server }))
}

// planting is a store that takes raw values.
type planting struct {
	*Store
	t *testing.T
}

// Plant implements contracttest.Planter.
func (p planting) Plant(path, value string) { shared.Put(p.t, path, value) }

func TestContract(t *testing.T) {
	contracttest.Run(t, func(t *testing.T) datastore.Store {
		shared.Wipe(t)
		return planting{openStore(t, Options{Endpoints: []string{shared.Endpoint}}), t}
	})
}

func openStore(t *testing.T, options Options) *Store {
	t.Helper()
	store, err := Open(within(t, time.Minute), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// TestNoRevision: what no object can have as its revision is a mistake of the
// caller; a server would take 0 for absence.
func TestNoRevision(t *testing.T) {
	t.Parallel()
	for _, revision := range []datastore.Revision{"0", "-1", "x"} {
		transaction, err := keyspace.Compile(keyspace.Identify, datastore.Step{datastore.Put(handleKey, &model.Handle{}, revision)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := requestOf(transaction); err == nil {
			t.Errorf("revision %q is accepted", revision)
		}
	}
}
