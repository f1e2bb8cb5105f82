// Package hns is the vocabulary between the Windows data plane and the host: the
// documents of the Host Networking Service (HCN schema 2.0), its error codes,
// and the interfaces by which it and the host's interfaces, routes and lock are
// reached.
//
// It does nothing itself, imports only the standard library, and builds on every
// operating system.
package hns
