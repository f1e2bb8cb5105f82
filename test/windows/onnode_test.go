//go:build wine && linux

package windows

import (
	"context"
	"strings"
	"testing"

	"calico-cni/test/windows/wine"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

// testOnNode runs what is meant for real nodes on the simulated one: there it
// must pass, and must find what is wrong with a node.
func testOnNode(t *testing.T, machine *wine.Host) {
	machine.Build(t, "onnode.exe", "./test/windows/onnode")
	run := func(n *node, args ...string) wine.Result {
		ctx, cancel := context.WithTimeout(n.Context(), 2*callTime)
		defer cancel()
		return machine.Run(ctx, n, wine.Call{Plugin: "onnode", Args: args, Port: n.server.Port()})
	}
	for _, mode := range []string{"vxlan", "l2bridge"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t, machine, build)
			got := run(n, "-mode", mode)
			if got.Exit != 0 || strings.Count(got.Stdout, "PASS  ") != 14 || !strings.Contains(got.Stdout, "\n0 failed") {
				t.Errorf("exit %d\n%s\n%s", got.Exit, got.Stdout, got.Stderr)
			}
			if left := n.endpoints(); len(left) > 0 {
				t.Errorf("left are %v", left)
			}
		})
	}
	t.Run("a node on which an endpoint takes no policy", func(t *testing.T) {
		n := newNode(t, machine, build)
		n.engine.Inject(hnssim.Fault{Call: "ModifyEndpoint", Times: 1, Code: hns.InvalidPolicy})
		got := run(n)
		if got.Exit != 1 || !strings.Contains(got.Stdout, "FAIL  ADD") || !strings.Contains(got.Stdout, "PASS  the node is as it was") {
			t.Errorf("exit %d\n%s\n%s", got.Exit, got.Stdout, got.Stderr)
		}
	})
}
