package linux

import (
	"net/netip"
	"slices"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
)

// addAction is what ADD does about a name on the host.
type addAction string

const (
	create     addAction = "create"
	replace    addAction = "delete, create"
	useSecond  addAction = "leave it, use the second name"
	readRecord addAction = "read the record again"
	overtaken  addAction = "fail with 118"
	refuse     addAction = "fail with 116"
)

// found is what a look-up of a host interface by name told. The zero value
// means that there is none.
type found struct {
	exists bool
	link   link
	// peerHere: the other end is in our pod's namespace, under peerName.
	peerHere bool
	peerName string
}

// decideFirst is table 9.1 A for the computed name. Callers have waited for an
// alias before they claim that there is none. reread is nil until the answer
// readRecord was given and obeyed. Half-made or reference-made is only what
// such a maker makes: a pair, under its own name and not an alternative one.
func decideFirst(h found, req dataplane.Request, reread *dataplane.Record) addAction {
	if !h.exists {
		return create
	}
	owner, named := h.link.owner()
	switch {
	case named && owner.Is(req.Attachment):
		return replace
	case named && owner.HasContainer(req.Attachment.ContainerID):
		return useSecond
	case named && !req.Kubernetes:
		return useSecond
	case named:
		return decideAgainstOther(owner, req.RecordAtStart, reread)
	case h.peerHere && h.peerName != req.Attachment.IfName:
		return useSecond
	case !h.link.isPair() || h.link.name != req.HostInterface:
		return refuse
	}
	return replace
}

// decideAgainstOther tells a predecessor from a successor: of two sandboxes of
// one pod the later one is in the record, once it has finished.
func decideAgainstOther(owner workload.Owner, atStart dataplane.Record, reread *dataplane.Record) addAction {
	switch {
	case atStart.Names(owner):
		return replace
	case reread == nil:
		return readRecord
	case reread.Names(owner) && len(reread.Addresses) > 0:
		return overtaken
	}
	return replace
}

// decideSecond is the rule for the second name: only our own leftover gives
// way. That may also be one without an alias, whose maker was killed before it
// gave one: its other end is the very interface we are to make (beyond 1).
func decideSecond(h found, req dataplane.Request) addAction {
	switch {
	case !h.exists:
		return create
	case h.link.isOurs(req.Attachment):
		return replace
	case !h.link.isNamed() && h.peerHere && h.peerName == req.Attachment.IfName:
		return replace
	}
	return refuse
}

// decidePodEnd is the rule for an interface that already has CNI_IFNAME in the
// pod after the names on the host are settled. peer is its host end, nil if
// that is unknown. Our own leftover is one whose host end got the second name,
// or was renamed, or was to be named when its maker was killed (beyond 1: what
// a killed ADD left is never an error). Callers have waited for an alias.
func decidePodEnd(pod, peer *link, req dataplane.Request) addAction {
	switch {
	case pod == nil:
		return create
	case peer == nil:
		return refuse
	case peer.isOurs(req.Attachment):
		return replace
	case !peer.isNamed() && (peer.name == req.HostInterface || peer.name == req.SecondInterface):
		return replace
	}
	return refuse
}

// delAction is what DEL does about the interface in the pod.
type delAction string

const (
	goOn           delAction = "go on"
	remove         delAction = "delete"
	leaveSuccessor delAction = "leave, a successor's"
	leaveForeign   delAction = "leave with a warning, not ours"
)

// decideRemoval is table 9.1 B. host is the host end of pod, nil if its peer is
// not in the host's namespace; onPod are the addresses of pod.
func decideRemoval(r dataplane.Removal, pod, host *link, onPod []netip.Addr) delAction {
	if pod == nil {
		return goOn
	}
	if !pod.isPair() || host == nil {
		return leaveForeign
	}
	if owner, named := host.owner(); named {
		if owner.Is(r.Attachment) {
			return remove
		}
		return leaveSuccessor
	}
	if namesOther(r.Record, r.Attachment) && slices.ContainsFunc(r.Record.Addresses, in(onPod)) {
		return leaveSuccessor
	}
	return remove
}

// namesOther reports whether the record is another container's.
func namesOther(record dataplane.Record, a workload.Attachment) bool {
	return record.ContainerID != "" && record.ContainerID != a.ContainerID
}

func in(addresses []netip.Addr) func(netip.Addr) bool {
	return func(address netip.Addr) bool { return slices.Contains(addresses, address.Unmap()) }
}
