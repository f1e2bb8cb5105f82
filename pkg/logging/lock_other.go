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
