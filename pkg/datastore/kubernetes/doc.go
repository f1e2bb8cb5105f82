// Package kubernetes is the datastore in a Kubernetes API server: Calico's
// custom resources of either group, and the nodes, pods and namespaces of
// Kubernetes itself as Calico's objects. It has no transactions: every write
// is safe by itself, and their order is the caller's.
//
// It may import pkg/model, pkg/datastore, keyspace and pkg/workload, and of
// client-go what reads credentials and shows them: clientcmd and rest. A typed
// client or a scheme it must never link: they would cost every run of a plugin
// more than the requests made here. It needs no right beyond the role that
// deploy/ describes.
package kubernetes
