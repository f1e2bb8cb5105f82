package upgrade

import "os"

// Disk is the part of a file system that is needed.
type Disk interface {
	// Names lists a directory in order.
	Names(directory string) ([]string, error)
	ReadFile(path string) ([]byte, error)
	Remove(path string) error
	RemoveAll(path string) error
}

// realDisk is the node's.
type realDisk struct{}

func (realDisk) Names(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, err
}

func (realDisk) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

func (realDisk) Remove(path string) error { return os.Remove(path) }

func (realDisk) RemoveAll(path string) error { return os.RemoveAll(path) }
