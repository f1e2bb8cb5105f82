// Package connect opens the datastore that a network configuration names, and
// says in CNI codes why one could not serve a call.
//
// It is the only package that knows all engines. It decides nothing about
// addresses or endpoints.
package connect
