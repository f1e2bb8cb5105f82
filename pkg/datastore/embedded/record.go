package embedded

import (
	"bytes"
	"fmt"
	"strconv"

	bolt "go.etcd.io/bbolt"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/keyspace"
)

// A record is stored as its revision in decimal, a newline, and the value as
// it would stand in etcd. The revision is the bucket's sequence number after
// the write.

func encodeRecord(revision uint64, value []byte) []byte {
	stored := strconv.AppendUint(make([]byte, 0, len(value)+21), revision, 10)
	return append(append(stored, '\n'), value...)
}

// decodeRecord copies: what bbolt returns is gone with the transaction.
func decodeRecord(path, stored []byte) (keyspace.Record, error) {
	revision, value, ok := bytes.Cut(stored, []byte("\n"))
	if !ok {
		return keyspace.Record{}, &damagedError{fmt.Sprintf("the record of %q has no revision", path)}
	}
	return keyspace.Record{
		Path:     string(path),
		Value:    bytes.Clone(value),
		Revision: datastore.Revision(revision),
	}, nil
}

// scan reads the records of a range.
func scan(bucket *bolt.Bucket, r keyspace.Range) (records []keyspace.Record, more bool, err error) {
	if !r.Prefix {
		record, exists, err := get(bucket, r.Path)
		if err != nil || !exists {
			return nil, false, err
		}
		return []keyspace.Record{record}, false, nil
	}
	prefix := []byte(r.Path)
	cursor := bucket.Cursor()
	for path, stored := cursor.Seek(prefix); path != nil && bytes.HasPrefix(path, prefix); path, stored = cursor.Next() {
		if r.Limit > 0 && len(records) == r.Limit {
			return records, true, nil
		}
		record, err := decodeRecord(path, stored)
		if err != nil {
			return nil, false, err
		}
		records = append(records, record)
	}
	return records, false, nil
}

func get(bucket *bolt.Bucket, path string) (record keyspace.Record, exists bool, err error) {
	stored := bucket.Get([]byte(path))
	if stored == nil {
		return keyspace.Record{}, false, nil
	}
	record, err = decodeRecord([]byte(path), stored)
	return record, err == nil, err
}
