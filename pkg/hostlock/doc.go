// Package hostlock is the advisory lock by which the IPAM plugins of one host
// take turns (IPAM contract 7.3). It only reduces contention: correctness rests
// on the datastore's guards, so callers may go on without it.
//
// The lock belongs to an open file; the kernel drops it when the process dies.
package hostlock
