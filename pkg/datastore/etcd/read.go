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

// Read implements datastore.Store with one transaction RPC per 128 queries.
// All of them see the revision of the first.
func (s *Store) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	operations, err := operationsOf(queries)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	answers := make([]datastore.Answer, 0, len(queries))
	for len(answers) < len(queries) {
		first, end := len(answers), min(len(answers)+maxOperations, len(queries))
		response, err := s.do(ctx, "reading "+keyspace.Names(queries[first:end])+" from", request{then: operations[first:end]})
		if err != nil {
			return nil, err
		}
		for i, query := range queries[first:end] {
			answer, err := answer(query, response.Responses[i].GetResponseRange())
			if err != nil {
				return nil, s.failure("reading the "+query.String()+" from", 0, false, err)
			}
			answers = append(answers, answer)
		}
		if first == 0 {
			pin(operations, response.Header.Revision)
		}
	}
	return answers, nil
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
	if r.Limit > 0 {
		options = append(options, clientv3.WithLimit(int64(r.Limit)))
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
