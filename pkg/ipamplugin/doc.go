// Package ipamplugin is the IPAM plugin's verbs: it turns a call of the CNI
// protocol into requests to the allocator, and keeps the traces on this host
// by which later verbs find what was lost.
//
// The network plugin may run it in its own process, on its own datastore
// connection; the result is the same as if it were executed. It touches
// neither the environment nor stdout.
package ipamplugin
