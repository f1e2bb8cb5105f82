// Package memory is a datastore for tests: the keys and values of etcd in a
// map, with latency, faults, competing writers and a log of the calls.
//
// It may import pkg/model, pkg/datastore and keyspace. It must never be
// imported by anything but tests.
package memory
