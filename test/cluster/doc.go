// Package cluster tests the pair from end to end: real nodes with Debian's
// containerd and a kubelet, a real API server, pods that ping each other. The
// tests look at the cluster from outside: what the API server holds, what the
// kernel of a node shows, what pods reach.
//
// It contains tests only, with the build tag kubernetes; make test-kubernetes
// runs them, and go test -tags kubernetes -run Containerd those that need no
// kubelet, which is quicker. They run cut off from the machine, by package
// isolated, and may import no package that the plugins are made of.
package cluster
