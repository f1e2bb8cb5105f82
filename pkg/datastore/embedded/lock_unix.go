//go:build !windows

package embedded

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock takes the lock that bbolt uses, without bbolt's pauses of 50 ms. A
// blocking call could not be interrupted, so it asks again and again.
func lock(ctx context.Context, handle *os.File, exclusive bool) error {
	how := unix.LOCK_SH | unix.LOCK_NB
	if exclusive {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	const longest = 5 * time.Millisecond
	for pause := longest / 32; ; pause = min(2*pause, longest) {
		err := unix.Flock(int(handle.Fd()), how)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return errLocked
		case <-time.After(pause):
		}
	}
}

func unlock(handle *os.File) error { return unix.Flock(int(handle.Fd()), unix.LOCK_UN) }
