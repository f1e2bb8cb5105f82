//go:build unix

package installer

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// writable fails if nothing can be written into a directory.
func writable(directory string) error {
	if err := unix.Access(directory, unix.W_OK); err != nil {
		return fmt.Errorf("%s is not writable: %w", directory, err)
	}
	return nil
}

// syncDir makes a rename last.
func syncDir(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}
