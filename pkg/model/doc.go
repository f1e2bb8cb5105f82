// Package model holds the objects that a Calico cluster's datastore contains:
// plain values, their keys, and their wire forms.
//
// It does no I/O and knows no engine. It never drops what it does not know:
// members that another writer put into a document survive a read and a write.
package model
