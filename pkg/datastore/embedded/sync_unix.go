//go:build !windows

package embedded

import (
	"errors"
	"os"
)

// syncDirectory makes a new name in the directory survive a power cut.
func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
