package logging

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestLevels(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]string{
		"debug": "DEBUG INFO ERROR",
		"DEBUG": "DEBUG INFO ERROR",
		"info":  "INFO ERROR",
		"Error": "ERROR",
		"":      "INFO ERROR",
		"trace": "INFO ERROR",
	} {
		t.Run("Network/54 level "+level, func(t *testing.T) {
			t.Parallel()
			var stderr bytes.Buffer
			logger, closeFile := New(Options{Level: level}, &stderr)
			logger.Debug("x")
			logger.Info("x")
			logger.Error("x")
			closeFile()
			var got []string
			for line := range strings.Lines(stderr.String()) {
				_, rest, _ := strings.Cut(line, "level=")
				word, _, _ := strings.Cut(rest, " ")
				got = append(got, word)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("logged %q, want %q", got, want)
			}
		})
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	t.Run("Network/54 file with parents, and stderr", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "a", "b", "cni.log")
		var stderr bytes.Buffer
		logger, closeFile := New(Options{File: path, MaxSizeMB: 1, MaxCount: 3}, &stderr)
		logger.With("pod", "shop/web-0").Info("Two\nlines")
		closeFile()
		logger.Info("after close")
		if got := read(t, path); !strings.Contains(got, `msg="Two\nlines" pod=shop/web-0`) || strings.Count(got, "\n") != 1 {
			t.Errorf("file holds %q", got)
		}
		if got := stderr.String(); strings.Count(got, "\n") != 2 || !strings.HasPrefix(got, read(t, path)) {
			t.Errorf("stderr holds %q", got)
		}
		if runtime.GOOS == "windows" {
			return // has no such modes
		}
		for path, want := range map[string]os.FileMode{path: 0o644, filepath.Dir(path): os.ModeDir | 0o755} {
			if info, err := os.Stat(path); err != nil || info.Mode()&^0o022 != want&^0o022 {
				t.Errorf("%s has mode %v, %v, want %v", path, info.Mode(), err, want)
			}
		}
	})
	t.Run("appends to what is there", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "cni.log")
		for range 2 {
			logger, closeFile := New(Options{File: path}, new(bytes.Buffer))
			logger.Info("x")
			closeFile()
		}
		if got := strings.Count(read(t, path), "\n"); got != 2 {
			t.Errorf("%d lines, want 2", got)
		}
	})
}

func TestUnusableFileFailsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(plain, "cni.log")} {
		var stderr bytes.Buffer
		logger, closeFile := New(Options{File: path}, &stderr)
		logger.Info("still here")
		closeFile()
		if got := stderr.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, path) || !strings.Contains(got, "still here") {
			t.Errorf("stderr holds %q", got)
		}
	}
}

// failing is a writer that takes nothing.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestBrokenStderrDoesNotKeepFromTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cni.log")
	logger, closeFile := New(Options{File: path}, failing{})
	logger.Info("x")
	closeFile()
	if got := read(t, path); !strings.Contains(got, "msg=x") {
		t.Errorf("file holds %q", got)
	}
}

func TestParseLevelKnowsNoOther(t *testing.T) {
	t.Parallel()
	if got := parseLevel("warning"); got != slog.LevelInfo {
		t.Errorf("level %v", got)
	}
}
