// Package session is one call of either plugin with what both need to serve
// it: configuration, workload, log and datastore connection, and their end.
//
// It decides nothing; the verbs are in pkg/plugin and pkg/ipamplugin.
package session
