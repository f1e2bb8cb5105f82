package logging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// limits are when a file is rotated and which rotated ones are kept.
type limits struct {
	size  int64 // bytes, 0 for never
	count int
	age   time.Duration // 0 for no limit
}

// rotatingFile is a log file that many processes append to at once. Rotated
// files are <path>.1 (the newest) to <path>.<count>.
//
// No line is lost or split: a record is one write to a file opened for
// appending, and rotating only renames. A process that has not noticed a
// rotation yet appends to <path>.1; before each record it looks whether path
// still is the file it has open.
type rotatingFile struct {
	path   string
	limits limits

	mu   sync.Mutex
	file *os.File // nil after close
}

func openFile(path string, limits limits) (*rotatingFile, error) {
	r := &rotatingFile{path: path, limits: limits}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("creating the directory of the log file %s: %w", path, err)
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	if r.hasExpired() {
		r.underLock(r.removeExpired)
	}
	return r, nil
}

// Write appends one record.
func (r *rotatingFile) Write(record []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return 0, fs.ErrClosed
	}
	r.follow()
	if r.isFull(len(record)) {
		r.underLock(func() { r.rotate(len(record)) })
	}
	return r.file.Write(record)
}

func (r *rotatingFile) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
}

// open replaces the open file by the one that path names now; if that fails,
// the open one stays in use.
func (r *rotatingFile) open() error {
	// Opening a pipe would wait for a reader.
	if info, err := os.Stat(r.path); err == nil && info.Mode()&(fs.ModeDir|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		return fmt.Errorf("opening the log file %s: it is a directory, pipe or socket", r.path)
	}
	file, err := openAppend(r.path)
	if err != nil {
		return fmt.Errorf("opening the log file: %w", err)
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file = file
	return nil
}

// follow opens the new file if another process has rotated the old one.
func (r *rotatingFile) follow() {
	have, err := r.file.Stat()
	if err != nil {
		return
	}
	if now, err := os.Stat(r.path); err != nil || !os.SameFile(have, now) {
		_ = r.open()
	}
}

// isFull reports whether the open file must be rotated before more is
// appended. A single record that is too large gets a file of its own.
func (r *rotatingFile) isFull(more int) bool {
	info, err := r.file.Stat()
	return err == nil && r.limits.size > 0 && info.Mode().IsRegular() &&
		info.Size() > 0 && info.Size()+int64(more) > r.limits.size
}

// rotate runs under the lock. Another process may have rotated before it was
// obtained, so everything is looked at again.
func (r *rotatingFile) rotate(more int) {
	r.follow()
	if !r.isFull(more) {
		return
	}
	// If a file cannot be moved, this one grows until the next try.
	if r.shift() != nil || os.Rename(r.path, r.rotated(1)) != nil {
		return
	}
	_ = r.open()
	r.removeExpired()
}

// shift makes <path>.1 free: it moves files up to the first gap, which a
// process killed here may have left, or over the oldest one. It stops at the
// first failure, lest a file be moved over one that should have been kept.
func (r *rotatingFile) shift() error {
	free := 1
	for free < r.limits.count && exists(r.rotated(free)) {
		free++
	}
	for n := free; n > 1; n-- {
		if err := os.Rename(r.rotated(n-1), r.rotated(n)); err != nil {
			return err
		}
	}
	return nil
}

func (r *rotatingFile) rotated(n int) string { return r.path + "." + strconv.Itoa(n) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// expired reports whether a rotated file is older than allowed.
func (r *rotatingFile) expired(n int) bool {
	info, err := os.Lstat(r.rotated(n))
	return err == nil && r.limits.age > 0 && time.Since(info.ModTime()) > r.limits.age
}

func (r *rotatingFile) hasExpired() bool {
	for n := 1; n <= r.limits.count; n++ {
		if r.expired(n) {
			return true
		}
	}
	return false
}

// removeExpired runs under the lock: else a file could be moved to the name of
// an expired one between the look and the removal.
func (r *rotatingFile) removeExpired() {
	for n := 1; n <= r.limits.count; n++ {
		if r.expired(n) {
			_ = os.Remove(r.rotated(n))
		}
	}
}

// underLock runs do while holding <path>.lock. If another process holds it, do
// is not run: that process does the work, and a verb must not wait for it.
func (r *rotatingFile) underLock(do func()) {
	lock, err := os.OpenFile(r.path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return
	}
	defer func() { _ = lock.Close() }() // releases the lock
	if tryLock(lock) {
		do()
	}
}
