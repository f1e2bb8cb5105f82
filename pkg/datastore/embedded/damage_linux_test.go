package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

const handles = 200

// populated is a file of some pages.
func populated(t *testing.T) (path string, data []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "datastore")
	store, _ := mustOpen(t, path, Bootstrap{NodeName: node})
	for first := 0; first < handles; first += handles / 4 { // several transactions
		var step datastore.Step
		for i := range handles / 4 {
			step = append(step, datastore.Put(handleKey(first+i), &model.Handle{}, datastore.Absent))
		}
		if _, err := store.Write(withDeadline(t), step); err != nil {
			t.Fatal(err)
		}
	}
	return path, content(t, path)
}

func handleKey(i int) model.HandleKey {
	return model.HandleKey{ID: fmt.Sprintf("net.%s%03d", strings.Repeat("x", 60), i)}
}

func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, filePermissions); err != nil {
		t.Fatal(err)
	}
}

// demand checks that a failure names the file and says what to do.
func demand(t *testing.T, err error, reason datastore.Reason, path string, texts ...string) {
	t.Helper()
	if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != reason {
		t.Fatalf("failed with reason %d: %v; want reason %d", datastore.ReasonOf(err), err, reason)
	}
	for _, text := range append(texts, path) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// bothVerbs reads all handles and adds one.
func bothVerbs(t *testing.T, path string) (found int, readErr, writeErr error) {
	t.Helper()
	store := &Store{file: file{path: path}}
	answers, readErr := store.Read(withDeadline(t), datastore.ListHandles{})
	if readErr == nil {
		found = len(answers[0].Entries)
	}
	_, writeErr = store.Write(withDeadline(t), datastore.Step{datastore.Put(handleKey(999), &model.Handle{}, datastore.Absent)})
	return found, readErr, writeErr
}

func TestTruncated(t *testing.T) {
	t.Parallel()
	path, data := populated(t)
	newest, ok := newestMeta(bytes.NewReader(data))
	if !ok {
		t.Fatal("a healthy file has no meta page")
	}
	needed := int(newest.pages * newest.pageSize)
	for _, length := range []int{0, 1, 100, 4095, 4096, 8192, 8300, 16384, needed - 4096, needed - 1} {
		replace(t, path, data[:length])
		_, readErr, writeErr := bothVerbs(t, path)
		demand(t, readErr, datastore.Unreachable, path, remedyDamaged)
		demand(t, writeErr, datastore.Unreachable, path, remedyDamaged)
		if _, _, err := Open(withDeadline(t), path, Bootstrap{NodeName: node}); err == nil {
			t.Errorf("cut to %d: Open succeeded", length)
		}
		if !bytes.Equal(content(t, path), data[:length]) {
			t.Errorf("cut to %d: the file was changed", length)
		}
	}
	replace(t, path, data[:needed])
	if found, readErr, writeErr := bothVerbs(t, path); found != handles || readErr != nil || writeErr != nil {
		t.Errorf("with every page there: %d handles, %v, %v", found, readErr, writeErr)
	}
}

func TestForeignFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "datastore")
	replace(t, path, bytes.Repeat([]byte("no bbolt file\n"), 5000))
	_, readErr, writeErr := bothVerbs(t, path)
	demand(t, readErr, datastore.Unreachable, path, "not a bbolt file", remedyDamaged)
	demand(t, writeErr, datastore.Unreachable, path, "not a bbolt file", remedyDamaged)

	other := filepath.Join(t.TempDir(), "other")
	db, err := bolt.Open(other, filePermissions, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, readErr, writeErr = bothVerbs(t, other)
	demand(t, readErr, datastore.Unreachable, other, "other program", remedyDamaged)
	demand(t, writeErr, datastore.Unreachable, other, "other program", remedyDamaged)
}

// TestDamagedPages destroys each page in turn, in several ways. It may go
// unnoticed, in a page that is not read; it may never end the process.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	path, data := populated(t)
	const pageSize = 4096
	for number := range len(data) / pageSize {
		for name, fill := range map[string]byte{"zeros": 0, "ones": 0xff, "text": 'x'} {
			damaged := bytes.Clone(data)
			page := damaged[number*pageSize : (number+1)*pageSize]
			for i := range page {
				page[i] = fill
			}
			replace(t, path, damaged)
			_, readErr, writeErr := bothVerbs(t, path)
			for _, err := range []error{readErr, writeErr} {
				if err != nil {
					demand(t, err, datastore.Unreachable, path)
				}
			}
			if t.Failed() {
				t.Fatalf("page %d filled with %s", number, name)
			}
		}
	}
	replace(t, path, data)
	if found, readErr, writeErr := bothVerbs(t, path); found != handles || readErr != nil || writeErr != nil {
		t.Errorf("the whole file: %d handles, %v, %v", found, readErr, writeErr)
	}
}

// TestOneMetaPage survives the loss of either: the last write may be lost
// with it, not more.
func TestOneMetaPage(t *testing.T) {
	t.Parallel()
	path, data := populated(t)
	for page := range 2 {
		damaged := bytes.Clone(data)
		copy(damaged[page*4096:], make([]byte, 4096))
		replace(t, path, damaged)
		if found, readErr, writeErr := bothVerbs(t, path); found < handles*3/4 || readErr != nil || writeErr != nil {
			t.Errorf("without meta page %d: %d handles, %v, %v", page, found, readErr, writeErr)
		}
	}
}

// TestFault cuts the file while it is mapped. The fault must end the
// transaction and give up the lock.
func TestFault(t *testing.T) {
	t.Parallel()
	path, data := populated(t)
	store := &Store{file: file{path: path}}
	for _, transact := range []func() error{
		func() error { return store.file.view(withDeadline(t), cutAndRead(t, path)) },
		func() error { return store.file.update(withDeadline(t), cutAndRead(t, path)) },
	} {
		demand(t, store.file.unavailable("reading", transact()), datastore.Unreachable, path, remedyDamaged)
		replace(t, path, data)
		if found, readErr, writeErr := bothVerbs(t, path); found != handles || readErr != nil || writeErr != nil {
			t.Fatalf("afterwards: %d handles, %v, %v", found, readErr, writeErr)
		}
		replace(t, path, data)
	}
}

func cutAndRead(t *testing.T, path string) func(*bolt.Bucket) error {
	return func(bucket *bolt.Bucket) error {
		if err := os.Truncate(path, 4096); err != nil {
			t.Error(err)
		}
		for i := range handles {
			bucket.Get([]byte(handleKey(i).Path()))
		}
		return nil
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err    error
		reason datastore.Reason
		remedy string
	}{
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, datastore.Refused, "allowed"},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EPERM}, datastore.Refused, "allowed"},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EROFS}, datastore.Refused, "writable"},
		{&fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}, datastore.Unreachable, "space"},
		{&fs.PathError{Op: "write", Path: "/x", Err: syscall.EDQUOT}, datastore.Unreachable, "space"},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, datastore.Unreachable, "removed"},
		{errLocked, datastore.Locked, "fuser"},
		{errors.New("anything else"), datastore.Unreachable, ""},
	} {
		reason, remedy := classify(row.err)
		if reason != row.reason || !strings.Contains(remedy, row.remedy) {
			t.Errorf("%v: reason %d, %q; want %d, %q", row.err, reason, remedy, row.reason, row.remedy)
		}
	}
}

func TestRemovedWhileInUse(t *testing.T) {
	t.Parallel()
	path, _ := populated(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, readErr, writeErr := bothVerbs(t, path)
	demand(t, readErr, datastore.Unreachable, path, "removed while in use")
	demand(t, writeErr, datastore.Unreachable, path, "removed while in use")
	if _, err := os.Stat(path); err == nil {
		t.Error("an empty file was made in its place")
	}
}

func BenchmarkOpenReadClose(b *testing.B) {
	store := benchmarked(b)
	for b.Loop() {
		if _, err := store.Read(withDeadline(b), datastore.Get{Key: handleKey(1)}, datastore.ListHandles{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenWriteClose(b *testing.B) {
	store := benchmarked(b)
	for b.Loop() {
		if _, err := store.Write(withDeadline(b), datastore.Step{datastore.Remove(handleKey(1), datastore.Any)}); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarked(b *testing.B) *Store {
	store, _, err := Open(withDeadline(b), filepath.Join(b.TempDir(), "datastore"), Bootstrap{NodeName: node})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 50 {
		if _, err := store.Write(withDeadline(b), datastore.Step{datastore.Put(handleKey(i), &model.Handle{}, datastore.Absent)}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	return store
}
