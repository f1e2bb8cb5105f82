package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
)

// requestTimeout bounds one transaction inside the caller's deadline.
const requestTimeout = 15 * time.Second

// bucketName is the one bucket. It names the layout: records as in record.go.
const bucketName = "calico/1"

// file is a bbolt file that is opened for each transaction.
type file struct{ path string }

func (f file) view(ctx context.Context, do func(*bolt.Bucket) error) error {
	return f.transact(ctx, false, do)
}

func (f file) update(ctx context.Context, do func(*bolt.Bucket) error) error {
	return f.transact(ctx, true, do)
}

// transact opens the file, runs do in one transaction, and closes the file.
//
// bbolt panics on damaged pages, and reading a mapped page that the disk
// cannot give is a fault. Both end here as errors; then the lock is given up
// and the handle closed under bbolt's feet, since its own Close would wait for
// the transaction that never ended.
func (f file) transact(ctx context.Context, writable bool, do func(*bolt.Bucket) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var handle *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = errors.Join(&damagedError{fmt.Sprint(cause)}, abandon(handle))
		}
	}()
	db, err := bolt.Open(f.path, filePermissions, &bolt.Options{
		ReadOnly:     !writable,
		Timeout:      remaining(ctx),
		FreelistType: bolt.FreelistMapType,
		NoStatistics: true,
		OpenFile: func(path string, flag int, mode os.FileMode) (*os.File, error) {
			handle, err = openLocked(ctx, path, flag, mode)
			return handle, err
		},
	})
	if err != nil {
		return err
	}
	if writable {
		err = db.Update(inBucket(do))
	} else {
		err = db.View(inBucket(do))
	}
	return errors.Join(err, db.Close())
}

// abandon closes a handle whose mapping stays. The mapping alone would keep
// the lock.
func abandon(handle *os.File) error {
	if handle == nil {
		return nil
	}
	return errors.Join(unlock(handle), handle.Close())
}

func inBucket(do func(*bolt.Bucket) error) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte(bucketName))
		if bucket == nil {
			return errForeign
		}
		return do(bucket)
	}
}

// remaining is never 0, which bbolt would take for no limit.
func remaining(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return max(time.Until(deadline), time.Millisecond)
}

// openLocked opens an existing file, takes its lock, and makes sure that what
// bbolt is about to map is there. bbolt finds the lock taken, by itself.
func openLocked(ctx context.Context, path string, flag int, mode os.FileMode) (*os.File, error) {
	handle, err := os.OpenFile(path, flag&^os.O_CREATE, mode)
	if err != nil {
		return nil, err
	}
	if err := lock(ctx, handle, flag&os.O_RDWR != 0); err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	if err := checkLength(handle); err != nil {
		return nil, errors.Join(err, handle.Close())
	}
	return handle, nil
}
