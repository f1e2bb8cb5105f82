// Package etcdtest runs real etcd servers for tests: the server of this
// module's go.mod, on loopback or in networks of the test's own, each with data
// of its own.
//
// It may be imported by tests only. No server outlives the test binary.
package etcdtest
