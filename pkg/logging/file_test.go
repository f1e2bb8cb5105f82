package logging

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// writerVariable makes the test binary a process that only logs:
// <path> <id> <records>, separated by newlines.
const writerVariable = "LOGGING_TEST_WRITER"

func TestMain(m *testing.M) {
	if task := os.Getenv(writerVariable); task != "" {
		os.Exit(writeRecords(strings.Split(task, "\n")))
	}
	os.Exit(m.Run())
}

// contended are limits under which the test's processes rotate all the time
// and nothing is ever removed.
var contended = limits{size: 16 << 10, count: 10_000}

func writeRecords(task []string) int {
	records, err := strconv.Atoi(task[2])
	if err != nil {
		return 1
	}
	// A runtime starts a process for each verb, so the file is opened often.
	const perOpening = 50
	for n := 0; n < records; {
		logger, closeFile := newLogger("info", task[0], contended, io.Discard)
		for range min(perOpening, records-n) {
			logger.Info("record", "writer", task[1], "n", n, "filling", strings.Repeat("x", n%120))
			n++
		}
		closeFile()
	}
	return 0
}

func TestManyProcessesLoseAndSplitNothing(t *testing.T) {
	t.Parallel()
	const writers, records = 8, 1000
	path := filepath.Join(t.TempDir(), "cni.log")
	var processes [writers]*exec.Cmd
	for i := range processes {
		processes[i] = exec.Command(os.Args[0])
		processes[i].Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d\n%d", writerVariable, path, i, records))
		if err := processes[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, process := range processes {
		if err := process.Wait(); err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	seen := make(map[string]int)
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for line := range strings.Lines(read(t, file)) {
			seen[recordOf(t, line)]++
		}
	}
	for i := range writers {
		for n := range records {
			if got := seen[fmt.Sprintf("writer=%d n=%d", i, n)]; got != 1 {
				t.Errorf("record %d of writer %d was found %d times", n, i, got)
			}
		}
	}
	if len(files) < 20 {
		t.Errorf("only %d files: rotation was not tested", len(files))
	}
}

// recordOf checks that a line is whole and returns what identifies it.
func recordOf(t *testing.T, line string) string {
	t.Helper()
	_, rest, found := strings.Cut(line, " level=INFO msg=record ")
	id, filling, foundFilling := strings.Cut(rest, " filling=")
	_, number, _ := strings.Cut(id, " n=")
	n, err := strconv.Atoi(number)
	if !found || !foundFilling || err != nil || strings.Trim(filling, "\"\n") != strings.Repeat("x", n%120) ||
		!strings.HasPrefix(line, "time=") || !strings.HasSuffix(line, "\n") {
		t.Errorf("line is not whole: %q", line)
	}
	return id
}

// files returns what the log and its rotated files hold, newest first.
func files(t *testing.T, path string) string {
	t.Helper()
	content := []string{read(t, path)}
	for n := 1; exists(path + "." + strconv.Itoa(n)); n++ {
		content = append(content, read(t, path+"."+strconv.Itoa(n)))
	}
	return strings.Join(content, "|")
}

func openTestFile(t *testing.T, path string, limits limits) *rotatingFile {
	t.Helper()
	file, err := openFile(path, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(file.close)
	return file
}

func write(t *testing.T, file *rotatingFile, records ...string) {
	t.Helper()
	for _, record := range records {
		if _, err := file.Write([]byte(record)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		limits  limits
		records []string
		want    string
	}{
		{"fits", limits{size: 4, count: 2}, []string{"aa", "bb"}, "aabb"},
		{"over the size", limits{size: 4, count: 2}, []string{"aa", "bb", "c"}, "c|aabb"},
		{"count", limits{size: 2, count: 2}, []string{"aa", "bb", "cc", "dd"}, "dd|cc|bb"},
		{"one rotated file", limits{size: 2, count: 1}, []string{"aa", "bb", "cc"}, "cc|bb"},
		{"a large record gets its own file", limits{size: 2, count: 3}, []string{"aaaa", "b", "cccc"}, "cccc|b|aaaa"},
		{"never", limits{count: 3}, []string{"aaaa", "bbbb"}, "aaaabbbb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "cni.log")
			write(t, openTestFile(t, path, tt.limits), tt.records...)
			if got := files(t, path); got != tt.want {
				t.Errorf("files hold %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRotationFillsAGap(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cni.log")
	for name, content := range map[string]string{path + ".1": "cc", path + ".3": "aa"} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(t, openTestFile(t, path, limits{size: 2, count: 3}), "dd", "ee")
	if got := files(t, path); got != "ee|dd|cc|aa" {
		t.Errorf("files hold %q", got)
	}
}

func TestRotationThatFailsKeepsAll(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cni.log")
	if err := os.WriteFile(path+".1", []byte("aa"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A directory that is not empty cannot be replaced.
	if err := os.MkdirAll(filepath.Join(path+".2", "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, openTestFile(t, path, limits{size: 2, count: 2}), "bb", "cc")
	if got := read(t, path) + "|" + read(t, path+".1"); got != "bbcc|aa" {
		t.Errorf("files hold %q", got)
	}
}

func TestFollowsTheRotationOfAnother(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cni.log")
	one := openTestFile(t, path, limits{size: 2, count: 3})
	other := openTestFile(t, path, limits{size: 2, count: 3})
	write(t, one, "aa")
	write(t, other, "b")
	write(t, one, "c")
	if got := files(t, path); got != "bc|aa" {
		t.Errorf("files hold %q", got)
	}
}

func TestDoesNotWaitForTheLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cni.log")
	// A process forked while the lock is held would keep it beyond our close.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	lock, err := os.Create(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	if !tryLock(lock) {
		t.Fatal("the lock is not free")
	}
	file := openTestFile(t, path, limits{size: 2, count: 3})
	write(t, file, "aa", "bb")
	if got := files(t, path); got != "aabb" {
		t.Errorf("while another process rotates, files hold %q", got)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, file, "cc")
	if got := files(t, path); got != "cc|aabb" {
		t.Errorf("after that, files hold %q", got)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cni.log")
	age := func(name string, days int) {
		when := time.Now().Add(-time.Duration(days) * day)
		if err := os.WriteFile(name, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	age(path, 100)
	age(path+".1", 29)
	age(path+".2", 31)
	logger, closeFile := New(Options{File: path, MaxCount: 3, MaxAgeDays: 30}, new(bytes.Buffer))
	logger.Info("x")
	closeFile()
	for name, want := range map[string]bool{path: true, path + ".1": true, path + ".2": false} {
		if exists(name) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(name), !want, want)
		}
	}
}
