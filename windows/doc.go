// Package windows is the Windows data plane: it connects a pod to the host by an
// endpoint of the Host Networking Service, and finds and removes what it made.
//
// It has no build tag: what it does to the host goes through the interfaces of
// package hns, which package node implements on Windows and package hnssim in
// tests. It may import those interfaces, pkg/dataplane, pkg/workload and
// pkg/cnierr. It must never know the datastore or the configuration, and never
// touch a network that is not of its own name.
package windows
