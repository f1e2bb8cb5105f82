// Package workload says who is being networked: the identity taken from the
// runtime's arguments, and every name that is derived from it.
//
// It is pure: no I/O, no environment, no operating system. The names are
// contracts with other programs on the cluster (specified in the datastore
// contract, section 6), so a change here breaks them.
package workload
