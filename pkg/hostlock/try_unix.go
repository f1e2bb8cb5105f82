//go:build unix

package hostlock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func try(file *os.File) (taken bool, err error) {
	err = flock(file, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func wait(file *os.File) error { return flock(file, unix.LOCK_EX) }

func flock(file *os.File, how int) error {
	for {
		if err := unix.Flock(int(file.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
