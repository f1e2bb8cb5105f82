// Package kubernetes tests against a real API server what needs one: the
// datastore engine in both groups, under exactly the role that deploy/ gives
// the plugins, its faults and its costs; and the plugins on it, in this process
// with a data plane in memory.
//
// The tests have the build tag kubernetes and run by make test-kubernetes.
package kubernetes
