//go:build linux

// Command bench measures the plugin pair as a runtime uses it: whole
// processes, on a real etcd, on the embedded file, on a real Kubernetes API
// server and on one whose answers take 10 ms more. It prints a table, and beside
// every figure what nothing could be faster than: the floors, measured in the
// same run. CPU and memory are those of the plugins, without the servers.
//
// It plays a host in namespaces of its own, and leaves nothing behind. It
// asserts nothing: what must hold exactly, calls and bytes, is asserted by
// tests.
package main
