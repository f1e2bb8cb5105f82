// Package node makes nodes of a cluster for tests: each has process, mount,
// network, host name and IPC namespaces of its own, its own copy-on-write view
// of this machine's files, and a containerd and a kubelet in them, on the
// network of the process that makes it.
//
// It may be imported by tests that package isolated runs only: it relies on
// their namespaces to end with everything in them.
package node
