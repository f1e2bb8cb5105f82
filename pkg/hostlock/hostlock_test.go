package hostlock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSecondWaitsForFirst(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "ipam.lock")
	first, err := Acquire(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		lock, err := Acquire(context.Background(), path)
		lock.Release()
		second <- err
	}()
	select {
	case err := <-second:
		t.Fatalf("the second holder did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	first.Release()
	first.Release()
	if err := <-second; err != nil {
		t.Fatal(err)
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ipam.lock")
	lock, err := Acquire(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Acquire(ctx, path); !errors.Is(err, ErrHeld) {
		t.Errorf("err = %v, want ErrHeld", err)
	}
	// Whoever gave up does not keep the lock when it comes to it after all.
	lock.Release()
	next, err := Acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	next.Release()
}

func TestUnusablePath(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "ipam.lock"), t.TempDir()} {
		if _, err := Acquire(context.Background(), path); err == nil || errors.Is(err, ErrHeld) {
			t.Errorf("%s: err = %v, want one that says why", path, err)
		}
	}
}
