// Package dataplane is the vocabulary between the network plugin and the data
// planes of the operating systems: what is asked of them and what they answer.
//
// It holds values and one interface, imports only pkg/workload, and does
// nothing itself.
package dataplane
