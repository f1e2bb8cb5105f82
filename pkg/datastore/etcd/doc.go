// Package etcd is the datastore in an etcd cluster, through etcd's client:
// every Read and every Write is one transaction RPC.
//
// It may import pkg/model, pkg/datastore, keyspace and etcd's client. It never
// repeats a write that may have been applied.
package etcd
