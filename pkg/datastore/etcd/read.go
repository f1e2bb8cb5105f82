package etcd

import (
	"context"
	"fmt"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/keyspace"
)

// pageKeys is how many keys of a whole family are read at once (IPAM contract
// 5.1).
const pageKeys = 1000

// Read implements datastore.Store with one transaction RPC per 128 queries,
// and one more for each further page of keys. All of them see the revision of
// the first.
func (s *Store) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	operations, err := operationsOf(queries)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	answers := make([]datastore.Answer, 0, len(queries))
	var revision int64
	for len(answers) < len(queries) {
		first, end := len(answers), min(len(answers)+maxOperations, len(queries))
		response, err := s.do(ctx, "reading "+keyspace.Names(queries[first:end])+" from", request{then: operations[first:end]})
		if err != nil {
			return nil, err
		}
		if first == 0 {
			revision = response.Header.Revision
			pin(operations, revision)
		}
		for i, query := range queries[first:end] {
			found := response.Responses[i].GetResponseRange()
			if err := s.readPages(ctx, query, operations[first+i], found, revision); err != nil {
				return nil, err
			}
			answer, err := answer(query, found)
			if err != nil {
				return nil, s.failure("reading the "+query.String()+" from", 0, false, err)
			}
			answers = append(answers, answer)
		}
	}
	return answers, nil
}

// readPages completes a list of keys that was cut although its query sets no
// limit.
func (s *Store) readPages(ctx context.Context, query datastore.Query, first clientv3.Op, found *pb.RangeResponse, revision int64) error {
	list, ok := query.(datastore.ListBlocks)
	if !ok || list.Limit > 0 {
		return nil
	}
	for found.More {
		after := string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
		page := clientv3.OpGet(after, clientv3.WithRange(string(first.RangeBytes())), clientv3.WithKeysOnly(),
			clientv3.WithLimit(pageKeys), clientv3.WithRev(revision))
		response, err := s.do(ctx, "reading the "+query.String()+" from", request{then: []clientv3.Op{page}})
		if err != nil {
			return err
		}
		next := response.Responses[0].GetResponseRange()
		found.Kvs, found.More = append(found.Kvs, next.Kvs...), next.More && len(next.Kvs) > 0
	}
	return nil
}

func operationsOf(queries []datastore.Query) ([]clientv3.Op, error) {
	operations := make([]clientv3.Op, len(queries))
	for i, query := range queries {
		r, err := keyspace.RangeOf(query)
		if err != nil {
			return nil, err
		}
		operations[i] = clientv3.OpGet(r.Path, optionsOf(r)...)
	}
	return operations, nil
}

func optionsOf(r keyspace.Range) []clientv3.OpOption {
	var options []clientv3.OpOption
	if r.Prefix {
		options = append(options, clientv3.WithPrefix())
	}
	if r.KeysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	switch {
	case r.Limit > 0:
		options = append(options, clientv3.WithLimit(int64(r.Limit)))
	case r.KeysOnly:
		options = append(options, clientv3.WithLimit(pageKeys))
	}
	return options
}

// pin makes what is still to be read be read as of this revision.
func pin(operations []clientv3.Op, revision int64) {
	for i := maxOperations; i < len(operations); i++ {
		pinned := clientv3.WithRev(revision)
		pinned(&operations[i])
	}
}

func answer(query datastore.Query, response *pb.RangeResponse) (datastore.Answer, error) {
	records := make([]keyspace.Record, len(response.Kvs))
	for i, kv := range response.Kvs {
		records[i] = keyspace.Record{Path: string(kv.Key), Value: kv.Value, Revision: revisionOf(kv.ModRevision)}
	}
	return keyspace.Answer(query, records, response.More)
}

func revisionOf(modRevision int64) datastore.Revision {
	return datastore.Revision(strconv.FormatInt(modRevision, 10))
}
