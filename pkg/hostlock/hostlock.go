package hostlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrHeld means that another process kept the lock for the whole wait.
var ErrHeld = errors.New("held by another process")

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
	taken, err := try(file)
	if err == nil && !taken {
		return await(ctx, file)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return &Lock{file: file}, nil
}

// await has a thread wait in the kernel, which wakes it the moment the lock is
// free; tried again and again, the lock would lie idle in between. No context
// ends such a wait: if ctx is over first, the thread stays, and gives back at
// once what it gets.
func await(ctx context.Context, file *os.File) (*Lock, error) {
	waited := make(chan error, 1)
	go func() { waited <- wait(file) }()
	select {
	case err := <-waited:
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
		return &Lock{file: file}, nil
	case <-ctx.Done():
		go func() {
			<-waited
			file.Close()
		}()
		return nil, fmt.Errorf("locking %s: %w", file.Name(), ErrHeld)
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
