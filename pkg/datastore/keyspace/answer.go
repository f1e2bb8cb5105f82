package keyspace

import (
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Record is one key as an engine stores it.
type Record struct {
	Path string
	// Value is ignored if only keys were asked for.
	Value    []byte
	Revision datastore.Revision
}

// Answer turns the records of a query's range, in key order, into its answer.
// more is whether the range's limit cut them. What a list cannot parse it
// skips (datastore contract 2); a Get of such a value is an error. Lists also
// drop what is flagged as deleted, which in etcd nothing ever is (datastore
// contract 3.3); a Get shows the flag.
func Answer(query datastore.Query, records []Record, more bool) (datastore.Answer, error) {
	if get, ok := query.(datastore.Get); ok {
		return answerGet(get, records)
	}
	answer := datastore.Answer{More: more}
	for _, record := range records {
		if entry, ok := listed(query, record); ok {
			answer.Entries = append(answer.Entries, entry)
		}
	}
	return answer, nil
}

func answerGet(get datastore.Get, records []Record) (datastore.Answer, error) {
	if len(records) == 0 {
		return datastore.Answer{}, nil
	}
	entry, err := decodeRecord(get.Key, records[0])
	if err != nil {
		return datastore.Answer{}, err
	}
	return datastore.Answer{Entries: []datastore.Entry{entry}}, nil
}

func decodeRecord(key model.Key, record Record) (datastore.Entry, error) {
	value, err := model.Decode(key, record.Value)
	if err != nil {
		return datastore.Entry{}, err
	}
	return datastore.Entry{Key: key, Value: value, Revision: record.Revision}, nil
}

func listed(query datastore.Query, record Record) (datastore.Entry, bool) {
	key, ok := model.ParsePath(record.Path)
	if !ok || !belongs(query, key) {
		return datastore.Entry{}, false
	}
	if blocks, ok := query.(datastore.ListBlocks); ok && blocks.KeysOnly {
		return datastore.Entry{Key: key, Revision: record.Revision}, true
	}
	entry, err := decodeRecord(key, record)
	return entry, err == nil && !flaggedDeleted(entry.Value)
}

// belongs excludes keys that lie in a query's range but are not asked for: the
// range of all owners' affinities holds both families.
func belongs(query datastore.Query, key model.Key) bool {
	list, ok := query.(datastore.ListAffinities)
	if !ok {
		return true
	}
	affinity, ok := key.(model.AffinityKey)
	return ok && affinity.Type == affinityType(list) && model.FamilyOf(affinity.CIDR.Addr()) == list.Family
}

// flaggedDeleted reports whether the first step of a two-step deletion has
// been taken (datastore contract 3.3). Lists treat such objects as absent.
func flaggedDeleted(value any) bool {
	switch v := value.(type) {
	case *model.Block:
		return v.Deleted
	case *model.Affinity:
		return v.Deleted
	case *model.Handle:
		return v.Deleted
	}
	return false
}
