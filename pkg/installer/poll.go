package installer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// quiet is how long a directory must rest after a change: what replaces the
// credentials in it does so in several steps.
const quiet = 50 * time.Millisecond

// tell does not wait: one change that is not taken yet is enough.
func tell(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// poll is watch for systems that it has no better way for.
func poll(ctx context.Context, directory string, pause time.Duration, changed chan<- struct{}) error {
	seen, err := fingerprint(directory)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := fingerprint(directory)
		if err == nil && now != seen {
			seen = now
			tell(changed)
		}
	}
}

// fingerprint differs when a file in a directory does.
func fingerprint(directory string) (string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return "", fmt.Errorf("watching %s: %w", directory, err)
	}
	var seen strings.Builder
	for _, entry := range entries {
		info, err := os.Stat(filepath.Join(directory, entry.Name()))
		if err != nil {
			continue // just replaced: the next look sees the new one
		}
		fmt.Fprintf(&seen, "%s %d %d\n", entry.Name(), info.Size(), info.ModTime().UnixNano())
	}
	return seen.String(), nil
}
