package datastore

import (
	"errors"
	"fmt"

	"calico-cni/pkg/model"
)

// The four errors. Every error of a Store wraps one of them and names the
// object; anything else is a bug.
var (
	ErrNotFound    = errors.New("does not exist")
	ErrExists      = errors.New("exists already")
	ErrConflict    = errors.New("was changed by someone else")
	ErrUnavailable = errors.New("datastore unavailable")
)

// Reason tells more about an ErrUnavailable.
type Reason int

const (
	// Unreachable: no answer, or none that helps.
	Unreachable Reason = iota
	// OutcomeUnknown: the write may have been applied. Read before anything
	// else; never repeat it blindly.
	OutcomeUnknown
	// Refused: credentials or permissions; the text says which.
	Refused
	// Locked: another process held the embedded file's lock for too long.
	Locked
	// Undefined: the server does not know this kind of objects.
	Undefined
)

// UnavailableError says why a store could not serve a call. It wraps
// ErrUnavailable and the cause.
type UnavailableError struct {
	Reason Reason
	// Doing says what was asked of which address or file.
	Doing string
	Err   error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrUnavailable, e.Doing, e.Err)
}

// Unwrap makes errors.Is find ErrUnavailable and the cause.
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// ReasonOf returns the reason of an ErrUnavailable.
func ReasonOf(err error) Reason {
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) {
		return unavailable.Reason
	}
	return Unreachable
}

// ConflictError says which guard of a Write did not hold.
type ConflictError struct {
	// Kind is ErrConflict, ErrExists or ErrNotFound.
	Kind error
	// Key is the first object whose guard did not hold.
	Key model.Key
	// Current holds what exists now of all guarded keys, so that a decision
	// can be taken anew without a read. Keys that do not exist are missing. It
	// is nil if the engine cannot tell.
	Current map[model.Key]Entry
	// Applied counts the steps that were applied; always 0 on a transactional
	// engine.
	Applied int
}

func (e *ConflictError) Error() string { return fmt.Sprintf("%s %v", e.Key, e.Kind) }

// Unwrap makes errors.Is find the kind.
func (e *ConflictError) Unwrap() error { return e.Kind }
