package memory

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/keyspace"
)

// data is an ordered set of keys and values.
type data struct {
	mu      sync.Mutex
	records map[string]keyspace.Record
	// paths are the keys of records, sorted.
	paths    []string
	revision int64
}

func newData() *data { return &data{records: map[string]keyspace.Record{}} }

func (d *data) read(queries []datastore.Query) ([]datastore.Answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answers := make([]datastore.Answer, len(queries))
	for i, query := range queries {
		r, err := keyspace.RangeOf(query)
		if err != nil {
			return nil, err
		}
		records, more := d.scan(r)
		if answers[i], err = keyspace.Answer(query, records, more); err != nil {
			return nil, undecodable(query.String(), err)
		}
	}
	return answers, nil
}

func undecodable(doing string, err error) error {
	return &datastore.UnavailableError{Reason: datastore.Unreachable, Doing: "reading " + doing + " from memory", Err: err}
}

func (d *data) scan(r keyspace.Range) (records []keyspace.Record, more bool) {
	if !r.Prefix {
		if record, ok := d.records[r.Path]; ok {
			return []keyspace.Record{record}, false
		}
		return nil, false
	}
	start, _ := slices.BinarySearch(d.paths, r.Path)
	for _, path := range d.paths[start:] {
		if !strings.HasPrefix(path, r.Path) {
			break
		}
		if r.Limit > 0 && len(records) == r.Limit {
			return records, true
		}
		records = append(records, d.records[path])
	}
	return records, false
}

func (d *data) apply(t keyspace.Transaction) (datastore.Written, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if conflict := t.Check(d.records); conflict != nil {
		return nil, conflict
	}
	d.revision++
	for _, change := range t.Changes {
		if change.Delete {
			d.remove(change.Path)
		} else {
			d.put(change.Path, change.Value)
		}
	}
	return t.Written(d.current()), nil
}

func (d *data) current() datastore.Revision {
	return datastore.Revision(strconv.FormatInt(d.revision, 10))
}

func (d *data) put(path string, value []byte) {
	if index, found := slices.BinarySearch(d.paths, path); !found {
		d.paths = slices.Insert(d.paths, index, path)
	}
	d.records[path] = keyspace.Record{Path: path, Value: value, Revision: d.current()}
}

func (d *data) remove(path string) {
	if index, found := slices.BinarySearch(d.paths, path); found {
		d.paths = slices.Delete(d.paths, index, index+1)
	}
	delete(d.records, path)
}
