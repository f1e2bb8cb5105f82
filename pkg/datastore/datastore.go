package datastore

import (
	"context"
	"fmt"

	"calico-cni/pkg/model"
)

// Store is a datastore. A Store is safe for concurrent use; no goroutine
// outlives the call that started it. Every call must be given a context with a
// deadline and returns within it.
type Store interface {
	// Read answers all queries, in their order, from as few round trips as the
	// engine has. A Get of an object that is absent answers with no entry, not
	// with an error; a Get whose value cannot be decoded is an error; a List
	// skips what it cannot parse.
	Read(ctx context.Context, queries ...Query) ([]Answer, error)

	// Write applies the steps in order, the mutations of a step together.
	//
	// A transactional engine applies everything or nothing. Any other ignores
	// Expect mutations, applies step after step and stops at the first failure;
	// with the error it returns the revisions of what it wrote before. A guard
	// that does not hold is a *ConflictError. Steps that are a mistake of the
	// caller, such as an update without a revision, fail with none of the four
	// errors, and nothing is written.
	Write(ctx context.Context, steps ...Step) (Written, error)

	// Transactional reports whether Write applies all steps or none.
	Transactional() bool

	// Close releases the connection or file. The store may not be used after.
	Close() error
}

// Revision identifies one version of one object. It is opaque: compare it, and
// hand it back.
type Revision string

const (
	// Absent is the revision of an object that does not exist.
	Absent Revision = ""
	// Any, in a Delete, deletes whatever is there, and nothing is fine too.
	Any Revision = "*"
)

// Query is a Get or one of the lists. Queries are comparable values.
type Query interface {
	// String names what is asked for, for messages.
	String() string
	query()
}

// Get asks for one object.
type Get struct{ Key model.Key }

// ListAffinities asks for the affinities of an owner. An empty Host means all
// owners of the type.
type ListAffinities struct {
	Type   string
	Host   string
	Family model.Family
}

// ListBlocks asks for the blocks of a family.
type ListBlocks struct {
	Family model.Family
	// TextPrefix narrows the list to blocks whose CIDR's text, with "-" for
	// "/", begins so. Empty: all.
	TextPrefix string
	// KeysOnly leaves Entry.Value nil, and may leave Entry.Revision empty.
	KeysOnly bool
	// Limit cuts the answer, 0 does not. A cut answer has More set.
	Limit int
}

// ListHandles asks for all handles.
type ListHandles struct{}

// ListResources asks for the v3 resources of a kind.
type ListResources struct {
	Kind model.Kind
	// Namespace is empty for cluster-wide kinds, and for all namespaces.
	Namespace string
	// NamePrefix narrows the list by the beginning of the name; it needs a
	// Namespace if the kind has them.
	NamePrefix string
	// OnNode asks an API server for the pods of one node only; no other
	// datastore holds pods. The plugins may not list any.
	OnNode string
}

func (Get) query()            {}
func (ListAffinities) query() {}
func (ListBlocks) query()     {}
func (ListHandles) query()    {}
func (ListResources) query()  {}

func (q Get) String() string { return q.Key.String() }

func (q ListAffinities) String() string {
	return fmt.Sprintf("%s affinities of %s:%s", q.Family, q.Type, q.Host)
}

func (q ListBlocks) String() string { return fmt.Sprintf("%s blocks %s*", q.Family, q.TextPrefix) }

func (ListHandles) String() string { return "handles" }

func (q ListResources) String() string {
	if q.OnNode != "" {
		return fmt.Sprintf("%ss of node %s", q.Kind, q.OnNode)
	}
	if q.NamePrefix != "" || q.Namespace != "" {
		return fmt.Sprintf("%ss %s/%s*", q.Kind, q.Namespace, q.NamePrefix)
	}
	return string(q.Kind) + "s"
}

// Entry is one object that was found.
type Entry struct {
	Key model.Key
	// Value is a pointer to the model type of the key; nil if only keys were
	// asked for. Entries may be shared: clone a value before changing it.
	Value    any
	Revision Revision
}

// Answer is what a query found, in the order of the keys' text.
type Answer struct {
	Entries []Entry
	// More is true if Limit cut the list.
	More bool
}

// One returns the value and revision of a Get's answer: nil and Absent if the
// object does not exist.
func One[T any](a Answer) (*T, Revision) {
	if len(a.Entries) == 0 {
		return nil, Absent
	}
	value, _ := a.Entries[0].Value.(*T)
	return value, a.Entries[0].Revision
}

// Op is what a mutation does.
type Op int

const (
	// Create writes an object that must not exist.
	Create Op = iota
	// Update writes an object whose revision must be as given.
	Update
	// Delete removes an object whose revision must be as given, or Any.
	Delete
	// Expect writes nothing and demands that the revision is as given; Absent
	// demands that the object does not exist.
	Expect
)

// Mutation is one guarded change. A step may hold one mutation per key.
type Mutation struct {
	Op       Op
	Key      model.Key
	Value    any
	Revision Revision
}

// Put is a Create if the revision is Absent and an Update otherwise.
func Put(key model.Key, value any, revision Revision) Mutation {
	if revision == Absent {
		return Mutation{Op: Create, Key: key, Value: value}
	}
	return Mutation{Op: Update, Key: key, Value: value, Revision: revision}
}

// Remove is a Delete.
func Remove(key model.Key, revision Revision) Mutation {
	return Mutation{Op: Delete, Key: key, Revision: revision}
}

// Guard is an Expect.
func Guard(key model.Key, revision Revision) Mutation {
	return Mutation{Op: Expect, Key: key, Revision: revision}
}

// Step is a set of mutations that are applied together.
type Step []Mutation

// Written tells the revisions of what a Write created or updated.
type Written map[model.Key]Revision
