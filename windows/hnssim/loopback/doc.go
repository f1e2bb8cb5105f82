// Package loopback serves a simulated host to programs for Windows: the DLLs of
// test/windows/dll forward each call of HNS and of the IP helper API to it over
// TCP. It is for tests, and listens on loopback only.
//
// A request is a line "<function> <id> <locked> <length>" and so many bytes; the
// answer a line "<code> <length>" and so many bytes. "-" stands for no id, locked
// is true while some process holds the network lock.
package loopback
