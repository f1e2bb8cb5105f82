package linux

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
)

// The two sandboxes of one pod, as linux data plane 9.1 calls them.
const sandboxA, sandboxB = "aaaa", "bbbb"

var addressB = netip.MustParseAddr("10.9.8.8")

// recordAtStart gives a request the record that ADD found.
func recordAtStart(container string, addresses ...netip.Addr) func(*dataplane.Request) {
	return func(r *dataplane.Request) {
		r.RecordAtStart = dataplane.Record{ContainerID: container, InterfaceName: hostName, Addresses: addresses}
	}
}

// addB is the ADD of the second sandbox, whose record still names the first.
func addB(pod *place, change ...func(*dataplane.Request)) dataplane.Request {
	return request(pod, sandboxB, append([]func(*dataplane.Request){
		withAddresses(addressB), recordAtStart(sandboxA, podV4)}, change...)...)
}

// wantIntact checks that the container's interface is complete: CHECK passes.
func (n *node) wantIntact(pod *place, container string, addresses ...netip.Addr) {
	n.t.Helper()
	n.wantIntactAs(pod, attachment(container), addresses...)
}

func (n *node) wantIntactAs(pod *place, a workload.Attachment, addresses ...netip.Addr) {
	n.t.Helper()
	clean := n.second()
	clean.d.kernel.convergenceLimit = 0
	diffs, err := clean.differences(dataplane.Expectation{Attachment: a, Namespace: pod.Path(), Addresses: addresses})
	must(n.t, err)
	wantList(n.t, "differences of "+a.ContainerID, diffs)
}

func TestSequences(t *testing.T) {
	row(t, "36 ADD A, ADD B, DEL A with, DEL A without", func(t *testing.T) {
		n, podA, podB := newNode(t), newPlace(t), newPlace(t)
		n.mustAdd(request(podA, sandboxA))
		n.mustAdd(addB(podB))
		n.mustDel(removal(podA, sandboxA))
		n.mustDel(removal(nil, sandboxA))
		n.wantIntact(podB, sandboxB, addressB)
	})

	row(t, "36 ADD A, ADD B in the same netns, DEL A with", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, sandboxA))
		n.mustAdd(addB(pod))
		n.mustDel(removal(pod, sandboxA))
		n.wantIntact(pod, sandboxB, addressB)
	})

	row(t, "36 ADD A, ADD B, DEL B, DEL A", func(t *testing.T) {
		n, podA, podB := newNode(t), newPlace(t), newPlace(t)
		n.mustAdd(request(podA, sandboxA))
		n.mustAdd(addB(podB))
		n.mustDel(removal(podB, sandboxB))
		n.mustDel(removal(podA, sandboxA))
		wantList(t, "interfaces left", append(append(n.names(), podA.names()...), podB.names()...))
	})

	row(t, "36 ADD A, DEL A, DEL A", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, sandboxA))
		n.mustDel(removal(pod, sandboxA))
		n.mustDel(removal(pod, sandboxA))
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "36 ADD B while DEL A runs, stopped at each of its steps", func(t *testing.T) {
		for _, op := range operationsOf(t, func(n *node, pod *place) { n.mustDel(removal(pod, "c1")) }) {
			for _, same := range []bool{false, true} {
				n, podA := newNode(t), newPlace(t)
				podB := podA
				if !same {
					podB = newPlace(t)
				}
				n.mustAdd(request(podA, sandboxA))
				n.fault(countedKey(op, func() error {
					n.second().mustAdd(addB(podB))
					return nil
				}))
				n.mustDel(removal(podA, sandboxA))
				n.wantIntact(podB, sandboxB, addressB)
			}
		}
	})

	row(t, "36 ADD A killed before its alias, ADD B", func(t *testing.T) {
		n, podA, podB := newNode(t), newPlace(t), newPlace(t)
		n.addVeth(hostName, podA, "eth0")
		n.mustAdd(request(podB, sandboxB, withAddresses(addressB)))
		n.wantIntact(podB, sandboxB, addressB)
		wantList(t, "interfaces of A", podA.names())
	})

	row(t, "36 ADD A killed before its alias, ADD B in the same netns", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.addVeth(hostName, pod, "eth0")
		n.mustAdd(request(pod, sandboxB, withAddresses(addressB)))
		n.wantIntact(pod, sandboxB, addressB)
	})

	row(t, "36 ADD A killed before its alias, DEL A with", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.addVeth(hostName, pod, "eth0")
		n.mustDel(removal(pod, sandboxA))
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "36 ADD B fails at each step", func(t *testing.T) {
		for _, op := range operationsOfAdd(t) {
			if toleratedInAdd(op) {
				continue
			}
			n, podA, podB := newNode(t), newPlace(t), newPlace(t)
			n.mustAdd(request(podA, sandboxA))
			n.fault(countedKey(op, func() error { return errInjected }))
			if _, err := n.add(addB(podB, dualStack, func(r *dataplane.Request) { r.MAC = []byte{0x0a, 0, 0, 0, 0, 1} })); err == nil {
				t.Errorf("ADD succeeded although %s failed", op)
			}
			wantList(t, "interfaces of B after "+op, podB.names())
			if n.has(hostName) && n.link(hostName).Attrs().Alias != attachment(sandboxA).Alias() {
				t.Errorf("after %s the host end is %q", op, n.link(hostName).Attrs().Alias)
			}
		}
	})

	row(t, "36 two non-Kubernetes containers with equal first 11 characters", func(t *testing.T) {
		n, podA, podB := newNode(t), newPlace(t), newPlace(t)
		other := func(r *dataplane.Request) { r.Kubernetes, r.ReadRecord = false, nil }
		n.mustAdd(request(podA, "cnitool-0001", other))
		made := n.mustAdd(request(podB, "cnitool-0002", other, withAddresses(addressB)))
		wantEqual(t, "the second one's name", made.HostInterface, secondName)
		wantEqual(t, "it is second", made.Second, true)
		n.wantIntact(podA, "cnitool-0001", podV4)
		n.wantIntact(podB, "cnitool-0002", addressB)

		n.mustDel(removal(podA, "cnitool-0001"))
		n.wantIntact(podB, "cnitool-0002", addressB)
		n.mustDel(removal(podB, "cnitool-0002"))
		wantList(t, "interfaces left", n.names())
	})
}

func TestOvertakenSequences(t *testing.T) {
	row(t, "36 ADD A stopped before step 1, ADD B completes, ADD A goes on", func(t *testing.T) {
		n, podA, podB := newNode(t), newPlace(t), newPlace(t)
		n.fault(counted(func(op string, seen int) error {
			if op == "host LinkByName" && seen == 0 {
				n.second().mustAdd(request(podB, sandboxB, withAddresses(addressB)))
			}
			return nil
		}))
		_, err := n.add(request(podA, sandboxA, func(r *dataplane.Request) {
			r.ReadRecord = recordOf(dataplane.Record{ContainerID: sandboxB, Addresses: []netip.Addr{addressB}})
		}))
		wantCode(t, err, cnierr.Overtaken, hostName, sandboxB)
		n.wantIntact(podB, sandboxB, addressB)
		wantList(t, "interfaces of A", podA.names())
	})

	row(t, "36 ADD A stopped after step 3, ADD B completes, ADD A goes on", func(t *testing.T) {
		n, podA, podB := newNode(t), newPlace(t), newPlace(t)
		n.fault(counted(func(op string, seen int) error {
			if op == "host LinkSetHardwareAddr" && seen == 0 {
				n.second().mustAdd(request(podB, sandboxB, withAddresses(addressB)))
			}
			return nil
		}))
		_, err := n.add(request(podA, sandboxA))
		wantCode(t, err, cnierr.Overtaken, hostName)
		n.wantIntact(podB, sandboxB, addressB)
		wantList(t, "interfaces of A", podA.names())
	})

	row(t, "36 ADD A stopped at every step, ADD B completes, ADD A goes on", func(t *testing.T) {
		for _, op := range operationsOfAdd(t) {
			n, podA, podB := newNode(t), newPlace(t), newPlace(t)
			record := dataplane.Record{}
			n.fault(countedKey(op, func() error {
				n.second().mustAdd(request(podB, sandboxB, withAddresses(addressB)))
				record = dataplane.Record{ContainerID: sandboxB, Addresses: []netip.Addr{addressB}}
				return nil
			}))
			made, err := n.add(request(podA, sandboxA, dualStack, func(r *dataplane.Request) {
				r.MAC = []byte{0x0a, 0, 0, 0, 0, 1}
				r.ReadRecord = func(context.Context) (dataplane.Record, error) { return record, nil }
			}))
			if err == nil {
				err = n.confirm(made)
			}
			wantCode(t, err, cnierr.Overtaken)
			n.wantIntact(podB, sandboxB, addressB)
			wantList(t, "interfaces of A after "+op, podA.names())
		}
	})

	row(t, "36 ADD A stopped before its record write, ADD B completes, ADD A goes on", func(t *testing.T) {
		n, podA, podB := newNode(t), newPlace(t), newPlace(t)
		made := n.mustAdd(request(podA, sandboxA))
		n.mustAdd(request(podB, sandboxB, withAddresses(addressB)))
		wantCode(t, n.confirm(made), cnierr.Overtaken, hostName)
		n.wantIntact(podB, sandboxB, addressB)
	})

	row(t, "10 stale host link without alias is replaced", func(t *testing.T) {
		n, old, pod := newNode(t), newPlace(t), newPlace(t)
		n.addVeth(hostName, old, "eth0")
		n.mustAdd(request(pod, "c1"))
		n.wantIntact(pod, "c1", podV4)
		wantList(t, "interfaces of the old pod", old.names())
	})

	row(t, "10 the record cannot be read", func(t *testing.T) {
		n, podA, podB := newNode(t), newPlace(t), newPlace(t)
		n.mustAdd(request(podA, sandboxA))
		_, err := n.add(request(podB, sandboxB, func(r *dataplane.Request) {
			r.ReadRecord = func(context.Context) (dataplane.Record, error) {
				return dataplane.Record{}, cnierr.New(cnierr.TryAgainLater, "the datastore is away")
			}
		}))
		wantCode(t, err, cnierr.TryAgainLater, hostName, "the datastore is away")
		n.wantIntact(podA, sandboxA, podV4)
	})
}

func TestReferenceSequences(t *testing.T) {
	// referenceAdd makes what the reference plugin makes: the same, unnamed.
	referenceAdd := func(n *node, pod *place, container string, change ...func(*dataplane.Request)) {
		n.t.Helper()
		n.mustAdd(request(pod, container, change...))
		must(n.t, n.handle.LinkSetAlias(n.link(hostName), ""))
	}

	row(t, "36 reference-made A, DEL A with", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		referenceAdd(n, pod, sandboxA)
		n.mustDel(removal(pod, sandboxA))
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "36 reference-made A, DEL A without", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		referenceAdd(n, pod, sandboxA)
		n.mustDel(removal(nil, sandboxA))
		n.wantIntact(pod, sandboxA, podV4)
	})

	row(t, "36 reference-made A, ADD B, DEL A with A's netns", func(t *testing.T) {
		n, podA, podB := newNode(t), newPlace(t), newPlace(t)
		referenceAdd(n, podA, sandboxA)
		n.mustAdd(addB(podB))
		n.mustDel(removal(podA, sandboxA))
		n.wantIntact(podB, sandboxB, addressB)
	})

	row(t, "36 reference-made A, then reference-made B in the same netns, DEL A with", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		referenceAdd(n, pod, sandboxB, withAddresses(addressB))
		r := removal(pod, sandboxA)
		r.Record = dataplane.Record{ContainerID: sandboxB, InterfaceName: hostName, Addresses: []netip.Addr{addressB}}
		n.mustDel(r)
		n.wantIntact(pod, sandboxB, addressB)
	})

	row(t, "36 an interface that is no pair is left with a warning", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		must(t, pod.handle.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
		n.mustDel(removal(pod, sandboxA))
		wantList(t, "interfaces of the pod", pod.names(), "eth0")
	})
}

func TestSecondInterface(t *testing.T) {
	eth1 := func(r *dataplane.Request) { r.Attachment.IfName, r.Addresses = "eth1", []netip.Addr{addressB} }
	asEth1 := workload.Attachment{Network: network, ContainerID: sandboxA, IfName: "eth1"}

	row(t, "36 ADD eth0, ADD eth1 of one sandbox, DEL eth1, DEL eth0", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, sandboxA))
		before := pod.routes(unix.AF_INET)
		n.mustAdd(request(pod, sandboxA, eth1))
		n.wantIntact(pod, sandboxA, podV4)
		n.wantIntactAs(pod, asEth1, addressB)
		for _, r := range before {
			if !slices.Contains(pod.routes(unix.AF_INET), r) {
				t.Errorf("route %q of eth0 is gone: %q", r, pod.routes(unix.AF_INET))
			}
		}
		wantEqual(t, "the second alias", n.link(secondName).Attrs().Alias, asEth1.Alias())

		r := removal(pod, sandboxA)
		r.Attachment = asEth1
		n.mustDel(r)
		n.wantIntact(pod, sandboxA, podV4)
		n.mustDel(removal(pod, sandboxA))
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "36 ADD eth0, ADD eth1 dual-stack, DEL eth0: eth1 works", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		addressB6 := netip.MustParseAddr("fd00::8")
		n.mustAdd(request(pod, sandboxA, dualStack))
		n.mustAdd(request(pod, sandboxA, eth1, withAddresses(addressB, addressB6)))
		n.wantIntact(pod, sandboxA, podV4, podV6)
		n.wantIntactAs(pod, asEth1, addressB, addressB6)
		n.mustDel(removal(pod, sandboxA))
		n.wantIntactAs(pod, asEth1, addressB, addressB6)
		n.wantReachable(addressB.String())
	})

	row(t, "36 host end renamed by hand, ADD of another sandbox into the same netns", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, sandboxA))
		must(t, n.handle.LinkSetDown(n.link(hostName)))
		must(t, n.handle.LinkSetName(n.link(hostName), "renamed"))
		_, err := n.add(addB(pod))
		wantCode(t, err, cnierr.NameTaken, "eth0", "renamed", sandboxA)
		wantList(t, "interfaces of the host", n.names(), "renamed")
	})

	row(t, "29 container interface already there", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		before := pod.addOther("eth0").Attrs().Index
		_, err := n.add(request(pod, sandboxA))
		wantCode(t, err, cnierr.NameTaken, "eth0", pod.Path())
		wantEqual(t, "the index of eth0", pod.link("eth0").Attrs().Index, before)
		wantList(t, "interfaces of the host", n.names())
	})

	row(t, "29 our own leftover under another name is replaced", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, sandboxA))
		must(t, n.handle.LinkSetDown(n.link(hostName)))
		must(t, n.handle.LinkSetName(n.link(hostName), "renamed"))
		n.mustAdd(request(pod, sandboxA))
		n.wantIntact(pod, sandboxA, podV4)
		wantList(t, "interfaces of the host", n.names(), hostName)
	})

	row(t, "36 tableA second name taken", func(t *testing.T) {
		n, pod, other := newNode(t), newPlace(t), newPlace(t)
		n.mustAdd(request(pod, sandboxA))
		n.addVeth(secondName, other, "eth0")
		_, err := n.add(request(pod, sandboxA, eth1))
		wantCode(t, err, cnierr.NameTaken, secondName)
		wantEqual(t, "the taken link is there", n.has(secondName), true)
		n.wantIntact(pod, sandboxA, podV4)
	})

	row(t, "36 tableA no alias and its peer in our netns under another name", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.addVeth(hostName, pod, "eth0")
		made := n.mustAdd(request(pod, sandboxA, eth1))
		wantEqual(t, "the name used", made.HostInterface, secondName)
		wantEqual(t, "the first link is there", n.has(hostName), true)
	})
}
