package installer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watch tells whenever something in a directory has changed and then rested
// for a while, until ctx ends. A change that is not taken yet counts for later
// ones too.
func watch(ctx context.Context, directory string, changed chan<- struct{}) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watching %s: %w", directory, err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	const mask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVE | unix.IN_CLOSE_WRITE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, directory, mask); err != nil {
		return fmt.Errorf("watching %s: %w", directory, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = events.Close() })
	defer stop()
	// What the events say is not looked at: that there are some is enough.
	buffer := make([]byte, 64*1024)
	for {
		if err := events.SetReadDeadline(time.Time{}); err != nil {
			return over(ctx, directory, err)
		}
		_, err := events.Read(buffer)
		for err == nil {
			_ = events.SetReadDeadline(time.Now().Add(quiet)) // fails if closed, as Read then does
			_, err = events.Read(buffer)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return over(ctx, directory, err)
		}
		tell(changed)
	}
}

func over(ctx context.Context, directory string, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watching %s: %w", directory, err)
}
