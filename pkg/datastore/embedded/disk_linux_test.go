package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// mountTmpfs mounts a file system of its own; it needs root.
func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	directory := t.TempDir()
	if err := unix.Mount("tmpfs", directory, "tmpfs", 0, options); err != nil {
		t.Fatalf("mounting a tmpfs, which needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(directory, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return directory
}

// fillUp leaves no free block on the file system.
func fillUp(t *testing.T, directory string) (filler string) {
	t.Helper()
	filler = filepath.Join(directory, "filler")
	file, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 4096); ; {
		if _, err := file.Write(block); errors.Is(err, unix.ENOSPC) {
			return filler
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "datastore")
	mustOpen(t, path, Bootstrap{NodeName: node})
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o755} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode().Perm(), err, want)
		}
	}
}

func bigStep() datastore.Step {
	var step datastore.Step
	for i := range 2000 {
		step = append(step, datastore.Put(handleKey(1000+i), &model.Handle{}, datastore.Absent))
	}
	return step
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	directory := mountTmpfs(t, "size=2m")
	path := filepath.Join(directory, "datastore")
	bootstrap := Bootstrap{NodeName: node}

	filler := fillUp(t, directory)
	_, _, err := Open(withDeadline(t), path, bootstrap)
	demand(t, err, datastore.Unreachable, path, "no space left", "free some space")
	if names := namesIn(t, directory); len(names) != 1 {
		t.Errorf("left by a failed first use: %q", names)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	store, _ := mustOpen(t, path, bootstrap)
	if _, err := store.Write(withDeadline(t), datastore.Step{datastore.Put(handleKey(1), &model.Handle{}, datastore.Absent)}); err != nil {
		t.Fatal(err)
	}
	filler = fillUp(t, directory)
	_, err = store.Write(withDeadline(t), bigStep())
	demand(t, err, datastore.Unreachable, path, "no space left", "free some space")
	mustOpen(t, path, bootstrap) // which reads, and finds everything
	mustGet[model.Handle](t, store, handleKey(1))

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Write(withDeadline(t), bigStep()); err != nil {
		t.Errorf("with free space again: %v", err)
	}
	mustGet[model.Handle](t, store, handleKey(1))
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	directory := mountTmpfs(t, "size=2m")
	path := filepath.Join(directory, "datastore")
	bootstrap := Bootstrap{NodeName: node}
	mustOpen(t, path, bootstrap)
	if err := unix.Mount("", directory, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}

	store, _ := mustOpen(t, path, bootstrap) // nothing is missing, so nothing is written
	mustGet[model.Node](t, store, model.ResourceKey{Kind: model.KindNode, Name: node})
	_, err := store.Write(withDeadline(t), bigStep())
	demand(t, err, datastore.Refused, path, "read-only", "must be writable")
	_, _, err = Open(withDeadline(t), path, Bootstrap{NodeName: "another"})
	demand(t, err, datastore.Refused, path, "read-only")
	elsewhere := filepath.Join(directory, "sub", "datastore")
	_, _, err = Open(withDeadline(t), elsewhere, bootstrap)
	demand(t, err, datastore.Refused, elsewhere, "read-only")
}

// holdLock takes the file's lock as another process would.
func holdLock(t *testing.T, path string, how int) (release func()) {
	t.Helper()
	handle, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(handle.Fd()), how); err != nil {
		t.Fatal(err)
	}
	return func() { handle.Close() }
}

func TestLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "datastore")
	store, _ := mustOpen(t, path, Bootstrap{NodeName: node})
	key := model.ResourceKey{Kind: model.KindNode, Name: node}
	step := datastore.Step{datastore.Remove(key, datastore.Any)}
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}

	release := holdLock(t, path, unix.LOCK_EX)
	started := time.Now()
	_, err := store.Read(short(), datastore.Get{Key: key})
	demand(t, err, datastore.Locked, path, "lock")
	_, err = store.Write(short(), step)
	demand(t, err, datastore.Locked, path, "lock")
	_, _, err = Open(short(), path, Bootstrap{NodeName: node})
	demand(t, err, datastore.Locked, path, "lock")
	if took := time.Since(started); took > 2*time.Second {
		t.Errorf("three calls of 100 ms took %v", took)
	}
	release()
	mustGet[model.Node](t, store, key)

	release = holdLock(t, path, unix.LOCK_SH) // a reader
	mustGet[model.Node](t, store, key)
	_, err = store.Write(short(), step)
	demand(t, err, datastore.Locked, path)
	release()
}

// TestLockGivenUp waits for a lock that is held for a while.
func TestLockGivenUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "datastore")
	store, _ := mustOpen(t, path, Bootstrap{NodeName: node})
	release := holdLock(t, path, unix.LOCK_EX)
	timer := time.AfterFunc(100*time.Millisecond, release)
	defer timer.Stop()
	if _, err := store.Write(withDeadline(t), bigStep()); err != nil {
		t.Error(err)
	}
}
