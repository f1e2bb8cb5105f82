package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/keyspace"
)

// Write implements datastore.Store with one transaction RPC. Its else branch
// reads the guarded keys, so that a lost race costs no further request.
func (s *Store) Write(ctx context.Context, steps ...datastore.Step) (datastore.Written, error) {
	transaction, err := keyspace.Compile(keyspace.Identify, steps...)
	if err != nil {
		return nil, fmt.Errorf("writing: %w", err)
	}
	if transaction.Empty() {
		return nil, nil
	}
	r, err := requestOf(transaction)
	if err != nil {
		return nil, fmt.Errorf("writing: %w", err)
	}
	doing := "writing " + transaction.Names() + " to"
	response, err := s.do(ctx, doing, r)
	switch {
	case err != nil:
		return nil, err
	case response.Succeeded:
		return transaction.Written(revisionOf(response.Header.Revision)), nil
	}
	return nil, s.conflict(doing, transaction, response)
}

func requestOf(transaction keyspace.Transaction) (request, error) {
	if operations := max(len(transaction.Guards), len(transaction.Changes)); operations > maxOperations {
		return request{}, fmt.Errorf("%d objects at once, but etcd takes at most %d", operations, maxOperations)
	}
	var r request
	for _, guard := range transaction.Guards {
		compare, err := comparisonOf(guard)
		if err != nil {
			return request{}, err
		}
		r.compare = append(r.compare, compare)
		r.otherwise = append(r.otherwise, clientv3.OpGet(guard.Path))
	}
	for _, change := range transaction.Changes {
		if change.Delete {
			r.then = append(r.then, clientv3.OpDelete(change.Path))
		} else {
			r.then = append(r.then, clientv3.OpPut(change.Path, string(change.Value)))
		}
	}
	return r, nil
}

func comparisonOf(guard keyspace.Guard) (clientv3.Cmp, error) {
	if guard.Revision == datastore.Absent {
		return clientv3.Compare(clientv3.Version(guard.Path), "=", 0), nil
	}
	// A server takes 0 for the revision of what does not exist.
	revision, err := strconv.ParseInt(string(guard.Revision), 10, 64)
	if err != nil || revision <= 0 {
		return clientv3.Cmp{}, fmt.Errorf("%s: %q is no revision of etcd", guard.Key, guard.Revision)
	}
	return clientv3.Compare(clientv3.ModRevision(guard.Path), "=", revision), nil
}

func (s *Store) conflict(doing string, transaction keyspace.Transaction, response *clientv3.TxnResponse) error {
	current := map[string]keyspace.Record{}
	for _, operation := range response.Responses {
		for _, kv := range operation.GetResponseRange().GetKvs() {
			path := string(kv.Key)
			current[path] = keyspace.Record{Path: path, Value: kv.Value, Revision: revisionOf(kv.ModRevision)}
		}
	}
	if conflict := transaction.Check(current); conflict != nil {
		return conflict
	}
	return s.failure(doing, 0, false, errors.New("the server refused guards that hold"))
}
