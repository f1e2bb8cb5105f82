// Command calico-ipam is the CNI IPAM plugin: it hands out addresses from
// blocks that belong to this node.
package main

import (
	"context"
	"os"

	"calico-cni/pkg/entry"
	"calico-cni/pkg/invocation"
	_ "calico-cni/pkg/shortlived"
)

func main() {
	os.Exit(run())
}

func run() int {
	if _, err := entry.Role(os.Args[0], entry.IPAM); err != nil {
		return invocation.Fail(entry.Process(entry.IPAM), nil, err)
	}
	return entry.RunIPAM(context.Background(), os.Args[1:])
}
