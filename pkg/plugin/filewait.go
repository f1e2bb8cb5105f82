package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// statusPause is the time between two looks for a file of which no watch tells
// (datastore contract 4.12).
const statusPause = 500 * time.Millisecond

// directoryWatch tells of what appears in a directory.
type directoryWatch interface {
	// next waits for the next change, at most until the deadline or the end of
	// ctx, which are no errors. After an error the watch is of no use.
	next(ctx context.Context, deadline time.Time) error
	close()
}

// errWatchEnded: the directory is gone, or another one now.
var errWatchEnded = errors.New("the watched directory is gone")

// fileWait waits for a file in a directory that may not exist yet.
type fileWait struct {
	pause time.Duration
	watch func(directory string) (directoryWatch, error)
}

// await returns nil when the file is there, or why ctx ended. The watch begins
// before each look, so that nothing appears unseen between the two; without one
// the looks alone find the file.
func (f fileWait) await(ctx context.Context, file string) error {
	var watch directoryWatch
	end := func() {
		if watch != nil {
			watch.close()
			watch = nil
		}
	}
	defer end()
	for {
		if watch == nil {
			// Most often the directory does not exist yet.
			watch, _ = f.watch(filepath.Dir(file))
		}
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		if watch == nil || watch.next(ctx, time.Now().Add(f.pause)) != nil {
			end()
			f.rest(ctx)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (f fileWait) rest(ctx context.Context) {
	timer := time.NewTimer(f.pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
