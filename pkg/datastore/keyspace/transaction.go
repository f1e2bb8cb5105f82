package keyspace

import (
	"errors"
	"fmt"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Transaction is a Write as an engine that applies all steps or none sees it:
// guards on what is there before, and changes. No key is changed twice.
type Transaction struct {
	Guards  []Guard
	Changes []Change
}

// Empty reports whether there is nothing to check and nothing to change.
func (t Transaction) Empty() bool { return len(t.Guards) == 0 && len(t.Changes) == 0 }

// Guard is what must hold of a key for the transaction to be applied.
type Guard struct {
	Key  model.Key
	Path string
	// Revision is Absent if the object must not exist.
	Revision datastore.Revision
}

// Change is the new value of a key, or its removal.
type Change struct {
	Key    model.Key
	Path   string
	Value  []byte
	Delete bool
}

// Compile merges the steps. identify is called for every v3 resource that is
// created; it is Identify outside of tests. An error means that the steps are
// a mistake of the caller.
func Compile(identify func(*model.Metadata), steps ...datastore.Step) (Transaction, error) {
	var t Transaction
	changed := map[string]bool{}
	for _, step := range steps {
		for _, m := range step {
			if err := t.add(m, identify, changed); err != nil {
				return Transaction{}, err
			}
		}
	}
	return t, nil
}

func (t *Transaction) add(m datastore.Mutation, identify func(*model.Metadata), changed map[string]bool) error {
	path, err := PathOf(m.Key)
	if err != nil {
		return err
	}
	if err := checkRevision(m); err != nil {
		return err
	}
	t.guard(Guard{Key: m.Key, Path: path, Revision: m.Revision})
	if m.Op == datastore.Expect {
		return nil
	}
	if changed[path] {
		return fmt.Errorf("%s: changed twice in one write", m.Key)
	}
	changed[path] = true
	change := Change{Key: m.Key, Path: path, Delete: m.Op == datastore.Delete}
	if !change.Delete {
		if change.Value, err = encode(m, identify); err != nil {
			return err
		}
	}
	t.Changes = append(t.Changes, change)
	return nil
}

// guard adds a guard unless it demands nothing or stands there already.
func (t *Transaction) guard(g Guard) {
	if g.Revision == datastore.Any {
		return
	}
	for _, have := range t.Guards {
		if have == g {
			return
		}
	}
	t.Guards = append(t.Guards, g)
}

func checkRevision(m datastore.Mutation) error {
	var wrong error
	switch m.Op {
	case datastore.Create:
		if m.Revision != datastore.Absent {
			wrong = errors.New("a create expects absence, not a revision")
		}
	case datastore.Update:
		if m.Revision == datastore.Absent || m.Revision == datastore.Any {
			wrong = errors.New("an update needs the revision it replaces")
		}
	case datastore.Delete:
		if m.Revision == datastore.Absent {
			wrong = errors.New("a delete needs the revision it removes")
		}
	case datastore.Expect:
		if m.Revision == datastore.Any {
			wrong = errors.New("an expectation needs a revision, or absence")
		}
	default:
		wrong = fmt.Errorf("%d is not an operation", m.Op)
	}
	if wrong != nil {
		return fmt.Errorf("%s: %w", m.Key, wrong)
	}
	return nil
}

// Check compares the guards with the records that exist of their keys. It
// returns nil if all hold.
func (t Transaction) Check(current map[string]Record) *datastore.ConflictError {
	for _, guard := range t.Guards {
		record, exists := current[guard.Path]
		if kind := guard.failure(record.Revision, exists); kind != nil {
			return &datastore.ConflictError{Kind: kind, Key: guard.Key, Current: t.entries(current)}
		}
	}
	return nil
}

func (g Guard) failure(revision datastore.Revision, exists bool) error {
	switch {
	case g.Revision == datastore.Absent && exists:
		return datastore.ErrExists
	case g.Revision == datastore.Absent:
		return nil
	case !exists:
		return datastore.ErrNotFound
	case revision != g.Revision:
		return datastore.ErrConflict
	}
	return nil
}

// entries are what exists of the guarded keys, or nil if one of them cannot be
// decoded: who needs that one meets the error when reading it.
func (t Transaction) entries(current map[string]Record) map[model.Key]datastore.Entry {
	entries := map[model.Key]datastore.Entry{}
	for _, guard := range t.Guards {
		record, exists := current[guard.Path]
		if !exists {
			continue
		}
		entry, err := decodeRecord(guard.Key, record)
		if err != nil {
			return nil
		}
		entries[guard.Key] = entry
	}
	return entries
}

// Written gives the keys that were created or updated their new revision.
func (t Transaction) Written(revision datastore.Revision) datastore.Written {
	written := datastore.Written{}
	for _, change := range t.Changes {
		if !change.Delete {
			written[change.Key] = revision
		}
	}
	return written
}
