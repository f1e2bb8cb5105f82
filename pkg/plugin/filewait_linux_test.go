package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// never is a pause after which a test would long have been given up: a file
// that is found anyway was told of by the watch.
const never = time.Hour

// observed runs something right before each wait for the next change, which is
// after the look for the file.
type observed struct {
	directoryWatch
	before func()
}

func (o observed) next(ctx context.Context, deadline time.Time) error {
	o.before()
	return o.directoryWatch.next(ctx, deadline)
}

// observing is a wait that runs the steps one by one, each before a wait for
// the next change.
func observing(t *testing.T, pause time.Duration, steps ...func()) fileWait {
	return fileWait{pause: pause, watch: func(directory string) (directoryWatch, error) {
		watch, err := watchDirectory(directory)
		if err != nil {
			return nil, err
		}
		return observed{watch, func() {
			if len(steps) == 0 {
				return
			}
			step := steps[0]
			steps = steps[1:]
			step()
		}}, nil
	}}
}

func writeEmpty(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func makeDirectory(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// broken is a watch that tells of nothing.
type broken struct{ closed *int }

func (broken) next(context.Context, time.Time) error { return errors.New("broken") }
func (b broken) close()                              { *b.closed++ }

func TestFileWait(t *testing.T) {
	t.Parallel()
	t.Run("Network/51 the file is there", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "status")
		writeEmpty(t, file)
		if err := observing(t, never).await(deadline(t), file); err != nil {
			t.Error(err)
		}
	})
	t.Run("Network/51 the file is written, beside others", func(t *testing.T) {
		t.Parallel()
		directory := t.TempDir()
		file := filepath.Join(directory, "status")
		wait := observing(t, never, func() { writeEmpty(t, filepath.Join(directory, "other")) }, func() { writeEmpty(t, file) })
		if err := wait.await(deadline(t), file); err != nil {
			t.Error(err)
		}
	})
	t.Run("Network/51 the file is moved there", func(t *testing.T) {
		t.Parallel()
		directory, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "new")
		file := filepath.Join(directory, "status")
		writeEmpty(t, elsewhere)
		wait := observing(t, never, func() { rename(t, elsewhere, file) })
		if err := wait.await(deadline(t), file); err != nil {
			t.Error(err)
		}
	})
	t.Run("Network/51 the directory does not exist yet", func(t *testing.T) {
		t.Parallel()
		directory := filepath.Join(t.TempDir(), "endpoint-status")
		file := filepath.Join(directory, "status")
		tries := 0
		wait := fileWait{pause: time.Millisecond, watch: func(directory string) (directoryWatch, error) {
			if tries++; tries == 3 {
				makeDirectory(t, directory)
			}
			watch, err := watchDirectory(directory)
			if watch == nil {
				return nil, err
			}
			return observed{watch, func() {
				if _, err := os.Stat(file); err != nil {
					writeEmpty(t, file)
				}
			}}, nil
		}}
		if err := wait.await(deadline(t), file); err != nil || tries != 3 {
			t.Errorf("%v; the directory was watched at try %d, want 3", err, tries)
		}
	})
	t.Run("Network/51 the directory is made anew", func(t *testing.T) {
		t.Parallel()
		parent := t.TempDir()
		directory := filepath.Join(parent, "endpoint-status")
		file := filepath.Join(directory, "status")
		makeDirectory(t, directory)
		wait := observing(t, time.Millisecond, func() {
			rename(t, directory, filepath.Join(parent, "old"))
			makeDirectory(t, directory)
			writeEmpty(t, file)
		})
		if err := wait.await(deadline(t), file); err != nil {
			t.Error(err)
		}
	})
	t.Run("Network/51 in vain", func(t *testing.T) {
		t.Parallel()
		for _, directory := range []string{t.TempDir(), filepath.Join(t.TempDir(), "nowhere")} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := (fileWait{pause: never, watch: watchDirectory}).await(ctx, filepath.Join(directory, "status"))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("in %s: %v", directory, err)
			}
		}
	})
	t.Run("Network/51 the call is given up", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		wait := observing(t, never, cancel)
		if err := wait.await(ctx, filepath.Join(t.TempDir(), "status")); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("Network/51 the watch fails", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "status")
		tries, closed := 0, 0
		wait := fileWait{pause: time.Millisecond, watch: func(string) (directoryWatch, error) {
			switch tries++; tries {
			case 1:
				return nil, errors.New("no watch is left")
			case 2:
				return broken{&closed}, nil
			}
			writeEmpty(t, file)
			return nil, errors.New("no watch is left")
		}}
		if err := wait.await(deadline(t), file); err != nil || tries != 3 || closed != 1 {
			t.Errorf("%v; found after %d tries, %d watches closed", err, tries, closed)
		}
	})
}
