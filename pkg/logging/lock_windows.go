package logging

import (
	"os"

	"golang.org/x/sys/windows"
)

// tryLock takes an exclusive lock, which closing the file releases, and reports
// whether it did. It does not wait.
func tryLock(file *os.File) bool {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(file.Fd()), flags, 0, 1, 0, &windows.Overlapped{}) == nil
}
