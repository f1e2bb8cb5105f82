// Package kubernetes is the datastore in a Kubernetes API server: Calico's
// custom resources of either group, and the nodes, pods and namespaces of
// Kubernetes itself as Calico's objects. It has no transactions: every write
// is safe by itself, and their order is the caller's.
//
// It may import pkg/model, pkg/datastore, keyspace and pkg/workload, and no
// client library: what that would link costs every run of a plugin more than
// the requests made here are worth. It needs no right beyond the role that
// deploy/ describes.
package kubernetes
