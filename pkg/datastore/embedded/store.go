package embedded

import (
	"context"
	"fmt"
	"os"
	"strconv"

	bolt "go.etcd.io/bbolt"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/keyspace"
)

// Store is a datastore in one file.
type Store struct{ file file }

var _ datastore.Store = (*Store)(nil)

// Transactional implements datastore.Store: it is.
func (s *Store) Transactional() bool { return true }

// Close implements datastore.Store; between two calls nothing is open.
func (s *Store) Close() error { return nil }

// Writable fails if the file can be read only, as on a disk that was mounted
// again after an error. It changes nothing.
func (s *Store) Writable() error {
	handle, err := os.OpenFile(s.file.path, os.O_RDWR, 0)
	if err == nil {
		err = handle.Close()
	}
	if err != nil {
		return s.file.unavailable("looking whether anything could be written", err)
	}
	return nil
}

// Read implements datastore.Store with one read transaction.
func (s *Store) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	ranges := make([]keyspace.Range, len(queries))
	for i, query := range queries {
		var err error
		if ranges[i], err = keyspace.RangeOf(query); err != nil {
			return nil, fmt.Errorf("reading: %w", err)
		}
	}
	found := make([]found, len(queries))
	err := s.file.view(ctx, func(bucket *bolt.Bucket) (err error) {
		for i, r := range ranges {
			if found[i].records, found[i].more, err = scan(bucket, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, s.file.unavailable("reading "+keyspace.Names(queries), err)
	}
	return s.answer(queries, found)
}

type found struct {
	records []keyspace.Record
	more    bool
}

func (s *Store) answer(queries []datastore.Query, found []found) ([]datastore.Answer, error) {
	answers := make([]datastore.Answer, len(queries))
	for i, query := range queries {
		var err error
		if answers[i], err = keyspace.Answer(query, found[i].records, found[i].more); err != nil {
			return nil, s.file.unavailable("reading the "+query.String(), err)
		}
	}
	return answers, nil
}

// Write implements datastore.Store with one transaction.
func (s *Store) Write(ctx context.Context, steps ...datastore.Step) (datastore.Written, error) {
	transaction, err := keyspace.Compile(keyspace.Identify, steps...)
	if err != nil {
		return nil, fmt.Errorf("writing: %w", err)
	}
	if transaction.Empty() {
		return nil, nil
	}
	return s.apply(ctx, transaction)
}

func (s *Store) apply(ctx context.Context, transaction keyspace.Transaction) (datastore.Written, error) {
	var revision uint64 // not 0 once only the commit is left
	var refused *datastore.ConflictError
	transact := s.file.update
	if len(transaction.Changes) == 0 {
		transact = s.file.view
	}
	err := transact(ctx, func(bucket *bolt.Bucket) (err error) {
		current, err := currentOf(bucket, transaction)
		if err != nil {
			return err
		}
		if refused = transaction.Check(current); refused != nil {
			return refused
		}
		if len(transaction.Changes) == 0 {
			return nil
		}
		revision, err = change(bucket, transaction)
		return err
	})
	doing := "writing " + transaction.Names()
	switch {
	case err == nil:
		return transaction.Written(datastore.Revision(strconv.FormatUint(revision, 10))), nil
	case refused != nil:
		return nil, refused
	case revision != 0 && s.mayHold(ctx, revision):
		return nil, s.file.outcomeUnknown(doing, err)
	}
	return nil, s.file.unavailable(doing, err)
}

// mayHold looks, after a failed commit, whether the file holds it all the
// same: the disk may have failed in the last of its steps.
func (s *Store) mayHold(ctx context.Context, revision uint64) bool {
	var last uint64
	err := s.file.view(ctx, func(bucket *bolt.Bucket) error {
		last = bucket.Sequence()
		return nil
	})
	return err != nil || last >= revision
}

func currentOf(bucket *bolt.Bucket, transaction keyspace.Transaction) (map[string]keyspace.Record, error) {
	current := map[string]keyspace.Record{}
	for _, guard := range transaction.Guards {
		record, exists, err := get(bucket, guard.Path)
		if err != nil {
			return nil, err
		}
		if exists {
			current[guard.Path] = record
		}
	}
	return current, nil
}

func change(bucket *bolt.Bucket, transaction keyspace.Transaction) (revision uint64, err error) {
	next, err := bucket.NextSequence()
	if err != nil {
		return 0, err
	}
	for _, c := range transaction.Changes {
		if c.Delete {
			err = bucket.Delete([]byte(c.Path))
		} else {
			err = bucket.Put([]byte(c.Path), encodeRecord(next, c.Value))
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", c.Key, err)
		}
	}
	return next, nil
}
