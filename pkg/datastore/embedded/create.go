package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	filePermissions      = 0o600
	directoryPermissions = 0o755
)

// abandonedAfter is when a file that is being made counts as left by a process
// that was killed.
const abandonedAfter = time.Minute

// create makes the file under another name and links it to its own when it is
// complete: under its own name there is never half a file, so that an empty or
// broken one always means damage. If two processes create, one link succeeds.
func create(ctx context.Context, path string) error {
	path, err := target(path)
	if err != nil {
		return err
	}
	directory, name := filepath.Split(path)
	directory = filepath.Clean(directory)
	if err := os.MkdirAll(directory, directoryPermissions); err != nil {
		return err
	}
	removeAbandoned(directory, name)
	unfinished, err := os.CreateTemp(directory, name+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(unfinished.Name())
	if err := unfinished.Close(); err != nil {
		return err
	}
	if err := fill(ctx, unfinished.Name()); err != nil {
		return fmt.Errorf("preparing %s: %w", unfinished.Name(), err)
	}
	if err := os.Link(unfinished.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDirectory(directory)
}

// target follows links that lead to where the file is to be.
func target(path string) (string, error) {
	const most = 40
	for range most {
		next, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link: the file itself, or nothing yet
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(path), next)
		}
		path = next
	}
	return "", fmt.Errorf("%s: more than %d links", path, most)
}

func fill(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	db, err := bolt.Open(path, filePermissions, &bolt.Options{Timeout: remaining(ctx), FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte(bucketName))
		return err
	})
	return errors.Join(err, db.Close())
}

// removeAbandoned clears up after processes that were killed while creating.
// What it cannot remove does no harm.
func removeAbandoned(directory, name string) {
	leftovers, _ := filepath.Glob(filepath.Join(directory, name+".new-*"))
	for _, leftover := range leftovers {
		if info, err := os.Stat(leftover); err == nil && time.Since(info.ModTime()) > abandonedAfter {
			_ = os.Remove(leftover)
		}
	}
}
