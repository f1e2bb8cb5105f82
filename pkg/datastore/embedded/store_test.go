package embedded

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/contracttest"
)

// bare is a store that holds nothing, and takes raw values.
type bare struct {
	*Store
	t *testing.T
}

// Plant implements contracttest.Planter.
func (b bare) Plant(path, value string) {
	b.t.Helper()
	err := b.file.update(withDeadline(b.t), func(bucket *bolt.Bucket) error {
		revision, err := bucket.NextSequence()
		if err != nil {
			return err
		}
		return bucket.Put([]byte(path), encodeRecord(revision, []byte(value)))
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func openBare(t *testing.T) datastore.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "datastore")
	if err := create(withDeadline(t), path); err != nil {
		t.Fatal(err)
	}
	return bare{&Store{file: file{path: path}}, t}
}

func withDeadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestContract(t *testing.T) { contracttest.Run(t, openBare) }
