package installer

import (
	"fmt"
	"os"
)

// writable fails if a directory is missing. Whether it may be written to is
// known only when that is tried.
func writable(directory string) error {
	info, err := os.Stat(directory)
	if err == nil && !info.IsDir() {
		err = os.ErrInvalid
	}
	if err != nil {
		return fmt.Errorf("%s is not a directory: %w", directory, err)
	}
	return nil
}

// syncDir does nothing: NTFS keeps the order of renames by itself.
func syncDir(string) error { return nil }
