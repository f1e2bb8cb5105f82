// Package node is the thin shell of the Windows data plane: the interfaces of
// package hns on a real host, by hcsshim's package hcn (schema 2 only), the IP
// helper API, and a named mutex. It decides nothing.
//
// Everything in it is for Windows. It may import package hns, hcn and x/sys, and
// must never start a process.
package node
