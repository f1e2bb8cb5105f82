package linux

import (
	"net/netip"
	"testing"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
)

// killedAt does what a process does that is killed right before an operation:
// nothing from there on, also no undoing.
func (n *node) killedAt(op string) {
	dead := false
	reached := countedKey(op, func() error { return errInjected })
	n.fault(func(op string) error {
		if reached(op) != nil {
			dead = true
		}
		if dead {
			return errInjected
		}
		return nil
	})
}

// TestAddKilledAtEveryStep kills an ADD before each of its operations and
// carries on in the three ways a runtime may.
func TestAddKilledAtEveryStep(t *testing.T) {
	withMAC := func(r *dataplane.Request) { r.MAC = []byte{0x0a, 0, 0, 0, 0, 1} }
	killed := func(t *testing.T, op string, change ...func(*dataplane.Request)) (*node, *place) {
		n, pod := newNode(t), newPlace(t)
		n.killedAt(op)
		if _, err := n.add(request(pod, sandboxA, append(change, dualStack, withMAC)...)); err == nil {
			t.Errorf("ADD succeeded although it was killed at %s", op)
		}
		return n.second(), pod
	}

	row(t, "36 ADD A killed at every step, ADD A again", func(t *testing.T) {
		for _, op := range operationsOfAdd(t) {
			n, pod := killed(t, op)
			n.mustAdd(request(pod, sandboxA, dualStack))
			n.wantIntact(pod, sandboxA, podV4, podV6)
			n.mustDel(removal(pod, sandboxA))
			wantList(t, "interfaces left after "+op, append(n.names(), pod.names()...))
		}
	})

	row(t, "36 ADD A killed at every step, ADD B, DEL A with", func(t *testing.T) {
		for _, op := range operationsOfAdd(t) {
			n, podA := killed(t, op)
			podB := newPlace(t)
			n.mustAdd(request(podB, sandboxB, withAddresses(addressB)))
			n.mustDel(removal(podA, sandboxA))
			n.wantIntact(podB, sandboxB, addressB)
			wantList(t, "interfaces of A after "+op, podA.names())
		}
	})

	row(t, "36 ADD A killed at every step, DEL A with", func(t *testing.T) {
		for _, op := range operationsOfAdd(t) {
			n, pod := killed(t, op)
			n.mustDel(removal(pod, sandboxA))
			wantList(t, "interfaces left after "+op, append(n.names(), pod.names()...))
		}
	})

	row(t, "36 second interface's ADD killed before its alias, again", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		asEth1 := workload.Attachment{Network: network, ContainerID: sandboxA, IfName: "eth1"}
		eth1 := func(r *dataplane.Request) { r.Attachment, r.Addresses = asEth1, []netip.Addr{addressB} }
		n.mustAdd(request(pod, sandboxA))
		n.addVeth(secondName, pod, "eth1")
		n.mustAdd(request(pod, sandboxA, eth1))
		n.wantIntact(pod, sandboxA, podV4)
		n.wantIntactAs(pod, asEth1, addressB)
	})
}
