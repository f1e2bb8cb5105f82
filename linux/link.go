package linux

import (
	"net"

	"calico-cni/pkg/workload"
)

// sameNamespace is a link's peerNamespace when both ends share a namespace, as
// the kernel then reports none.
const sameNamespace = -1

// link is what reading one network interface tells.
type link struct {
	index int
	name  string
	alias string
	kind  string
	mac   net.HardwareAddr
	mtu   int
	up    bool
	// peerIndex is the other end's index in the other end's namespace, 0 if
	// there is none; peerNamespace is the id by which this link's namespace
	// knows the other one.
	peerIndex     int
	peerNamespace int
}

// isPair reports whether the link is of a kind this plugin makes.
func (l link) isPair() bool { return l.kind == kindVeth || l.kind == kindNetkit }

// owner is what the link's alias tells; ok is false if it tells nothing.
func (l link) owner() (owner workload.Owner, ok bool) { return workload.ParseAlias(l.alias) }

// isNamed reports whether the alias names an owner.
func (l link) isNamed() bool {
	_, named := l.owner()
	return named
}

// isOurs reports whether the alias names the attachment.
func (l link) isOurs(a workload.Attachment) bool {
	owner, ok := l.owner()
	return ok && owner.Is(a)
}

// describeOwner says in a message whose the link is.
func (l link) describeOwner() string {
	if owner, ok := l.owner(); ok {
		return "of " + owner.String()
	}
	return "whose alias names no owner"
}
