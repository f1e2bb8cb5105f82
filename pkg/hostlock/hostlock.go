package hostlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrHeld means that another process kept the lock for the whole wait.
var ErrHeld = errors.New("held by another process")

// Neither flock nor LockFileEx can be awaited together with a context, so the
// lock is tried again after a pause that grows from the first to the second.
const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// Lock is a lock that is held. The zero value is not.
type Lock struct{ file *os.File }

// Acquire takes the lock at path, making the file and its directory if need
// be. It waits until ctx ends; the error then wraps ErrHeld.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, fmt.Errorf("making the directory of the lock file: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("opening the lock file: %w", err)
	}
	if err := await(ctx, file); err != nil {
		file.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return &Lock{file: file}, nil
}

func await(ctx context.Context, file *os.File) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for next := firstPause; ; next = min(2*next, lastPause) {
		taken, err := try(file)
		if err != nil || taken {
			return err
		}
		pause.Reset(next)
		select {
		case <-ctx.Done():
			return ErrHeld
		case <-pause.C:
		}
	}
}

// Release gives the lock back. It may be called twice, and on nil.
func (l *Lock) Release() {
	if l == nil || l.file == nil {
		return
	}
	l.file.Close()
	l.file = nil
}

// Held reports whether the lock is held. It may be called on nil.
func (l *Lock) Held() bool { return l != nil && l.file != nil }
