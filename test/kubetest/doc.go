// Package kubetest runs a real Kubernetes API server for tests, on an etcd of
// its own, with its access rules on, and a proxy that counts requests and makes
// them fail.
//
// It may be imported by tests only. No server outlives the test binary. The
// server's executable is built once per version by scripts/kubernetes-binaries.
package kubetest
