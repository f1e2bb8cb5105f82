//go:build !windows

package logging

import (
	"os"
	"syscall"
)

// tryLock takes an exclusive lock, which closing the file releases, and reports
// whether it did. It does not wait.
func tryLock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// openAppend opens a file for appending, which the system does atomically, and
// creates it if needed.
func openAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
}
