//go:build wine && linux

package windows

import (
	"context"
	"slices"
	"testing"

	"calico-cni/test/windows/wine"
	"calico-cni/windows/hnssim"
)

// testKilled kills calico.exe at each call of ADD and DEL that changes HNS, and
// lets HNS carry the call out all the same. The network lock is the dead
// process's then. That every call may be the last is tested without Wine.
func testKilled(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	n.sandbox("web-0")
	for _, verb := range []string{"ADD", "DEL"} {
		for at, name := range n.changing(verb) {
			n.fresh(verb)
			n.killedAt(at, verb)
			n.add("web-0")
			if got := n.endpoints(); !slices.Equal(got, []string{"Calico_ep", "web-0_Calico"}) {
				t.Errorf("%s killed at %s: endpoints %v", verb, name, got)
			}
			n.silent("DEL", "web-0", nil)
			n.wantNothing()

			n.fresh(verb)
			n.killedAt(at, verb)
			n.gc()
			n.wantNothing()
		}
	}
}

// changing are the positions, among all calls of a verb, of those that change
// HNS.
func (n *node) changing(verb string) map[int]string {
	n.Helper()
	n.fresh(verb)
	n.engine.ClearLog()
	if got := n.call(verb, "web-0", nil); got.Exit != 0 {
		n.Fatalf("%s: exit %d\n%s", verb, got.Exit, got.Stdout)
	}
	positions := map[int]string{}
	for at, call := range n.engine.Calls() {
		if call.Changes() {
			positions[at] = call.Name
		}
	}
	return positions
}

// fresh is the node before its first ADD, or before a DEL.
func (n *node) fresh(verb string) {
	n.Helper()
	n.silent("DEL", "web-0", nil)
	n.engine.Wipe()
	clear(n.netns)
	n.sandbox("web-0")
	if verb == "DEL" {
		n.add("web-0")
	}
}

// killedAt runs a verb whose process is killed while it waits for a call. The
// call is carried out after that.
func (n *node) killedAt(at int, verb string) {
	n.Helper()
	ctx, kill := context.WithCancel(n.Context())
	dead, over := make(chan struct{}), make(chan struct{})
	n.engine.Inject(hnssim.Fault{Skip: at, Times: 1, Afterwards: func() { close(over) }, During: func() {
		kill()
		<-dead
	}})
	n.life = ctx
	got := n.call(verb, "web-0", nil)
	n.life = nil
	if ctx.Err() == nil {
		n.Fatalf("%s has no call %d", verb, at)
	}
	close(dead)
	<-over
	n.engine.ClearFaults()
	if got.Exit == 0 || got.Stdout != "" {
		n.Errorf("%s was not killed: exit %d\n%s", verb, got.Exit, got.Stdout)
	}
}
