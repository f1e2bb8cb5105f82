package installer

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPoll is for systems where nothing tells of changes.
func TestPoll(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	put(t, filepath.Join(directory, "a"), "1", 0o600)
	changed := make(chan struct{}, 1)
	var polling sync.WaitGroup
	defer polling.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	polling.Go(func() {
		if err := poll(ctx, directory, time.Millisecond, changed); err != nil {
			t.Error(err)
		}
	})
	for i := 0; ; i++ {
		put(t, filepath.Join(directory, "a"), strings.Repeat("x", i), 0o600)
		select {
		case <-changed:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestWatchingWhatIsNotThere(t *testing.T) {
	t.Parallel()
	absent := filepath.Join(t.TempDir(), "absent")
	if err := watch(t.Context(), absent, nil); err == nil || !strings.Contains(err.Error(), absent) {
		t.Errorf("%v", err)
	}
	if err := poll(t.Context(), absent, time.Hour, nil); err == nil || !strings.Contains(err.Error(), absent) {
		t.Errorf("%v", err)
	}
}
