package embedded

import "os"

// Inspect opens a file that must exist, for those who only look: nothing is
// made.
func Inspect(path string) (*Store, error) {
	store := &Store{file: file{path: path}}
	if _, err := os.Stat(path); err != nil {
		return nil, store.file.unavailable("opening the datastore", err)
	}
	return store, nil
}
