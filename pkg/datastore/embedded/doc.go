// Package embedded is a datastore in one bbolt file, for a host that belongs
// to no cluster: the keys and values of etcd, each with a revision.
//
// It may import pkg/model, pkg/datastore, keyspace and bbolt. It holds the
// file and its lock for one transaction only, never between two calls, and
// never replaces a file that it cannot read.
package embedded
