// Package hnssim simulates the Host Networking Service of Windows and what the
// data plane needs of the host beside it, so that real mistakes show on Linux.
//
// One rules engine (Engine) works on the documents that go through the DLLs of
// HNS; Service and Host are its doors for Go. What is believed of the real HNS
// without having been seen is in one table (Assumptions) and can be switched
// off. It imports package hns and the standard library, and serves tests only.
package hnssim
