//go:build windows

// Command onnode runs the pair's executables on a real Windows node as a runtime
// does, prints a table of what passed, and leaves the node as it was:
//
//	GOOS=windows go build -o onnode.exe ./test/windows/onnode
//	onnode.exe -plugins C:\k\cni [-mode l2bridge]
//
// Run it on a node without pods: making the first network of an adapter
// interrupts the node's own connections for a moment. It uses a configuration, a
// datastore and networks of its own, and touches no others.
package main
