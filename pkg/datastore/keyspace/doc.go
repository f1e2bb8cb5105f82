// Package keyspace translates between the datastore contract and an ordered
// set of keys and values, which etcd, the embedded file and the memory store
// all are: queries to key ranges, raw records to answers, steps to one
// guarded transaction.
//
// It may import pkg/model and pkg/datastore. It does no I/O.
package keyspace
