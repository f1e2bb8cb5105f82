package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"

	"calico-cni/pkg/datastore"
)

var (
	errLocked  = errors.New("another process held its lock until the deadline")
	errForeign = errors.New("it is a bbolt file of some other program")
)

// damagedError says what is wrong with the content of the file.
type damagedError struct{ what string }

func (e *damagedError) Error() string { return e.what }

// remedyDamaged is careful: pods that run on hold addresses of which only the
// file knows.
const remedyDamaged = "restore it from a copy, or, with no container left on this host, remove it; it is never replaced by itself"

// unavailable explains why a transaction on the file could not be done.
func (f file) unavailable(doing string, err error) error {
	var known *datastore.UnavailableError
	if errors.As(err, &known) {
		return err
	}
	reason, remedy := classify(err)
	if remedy != "" {
		err = fmt.Errorf("%w: %s", err, remedy)
	}
	return &datastore.UnavailableError{Reason: reason, Doing: fmt.Sprintf("%s in %s", doing, f.path), Err: err}
}

func classify(err error) (reason datastore.Reason, remedy string) {
	var damaged *damagedError
	switch {
	case errors.Is(err, errLocked), errors.Is(err, bolterrors.ErrTimeout):
		return datastore.Locked, "find it with fuser or lsof"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return datastore.Unreachable, ""
	case errors.As(err, &damaged), errors.Is(err, errForeign), errors.Is(err, bolterrors.ErrInvalid),
		errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return datastore.Unreachable, remedyDamaged
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return datastore.Unreachable, "nothing was changed; free some space there"
	case errors.Is(err, syscall.EROFS):
		return datastore.Refused, "the file system must be writable, or the file be elsewhere"
	case errors.Is(err, fs.ErrPermission):
		return datastore.Refused, "the plugin must be allowed to read and write the file and its directory"
	case errors.Is(err, fs.ErrNotExist):
		return datastore.Unreachable, "it was removed while in use"
	}
	return datastore.Unreachable, ""
}

// outcomeUnknown explains a failed commit that may nevertheless be in the file.
func (f file) outcomeUnknown(doing string, err error) error {
	return &datastore.UnavailableError{
		Reason: datastore.OutcomeUnknown,
		Doing:  fmt.Sprintf("%s in %s", doing, f.path),
		Err:    fmt.Errorf("whether it was written is not known: %w", err),
	}
}
