package hostlock

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

func try(file *os.File) (taken bool, err error) {
	err = lock(file, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

func wait(file *os.File) error { return lock(file, 0) }

func lock(file *os.File, flags uint32) error {
	return windows.LockFileEx(windows.Handle(file.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|flags, 0,
		math.MaxUint32, math.MaxUint32, new(windows.Overlapped))
}
