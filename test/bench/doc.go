//go:build linux

// Command bench measures the plugin pair as a runtime uses it: whole
// processes, on a real etcd and on the embedded file. It prints a table, and
// beside every figure what nothing could be faster than: the floors, measured
// in the same run.
//
// It plays a host in namespaces of its own, and leaves nothing behind. It
// asserts nothing: what must hold exactly, calls and bytes, is asserted by
// tests.
package main
