package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Attachment is one interface of one container in one network: what a runtime
// adds and deletes.
type Attachment struct {
	Network     string
	ContainerID string
	IfName      string
}

// aliasPrefix begins the alias of every host interface this plugin made.
const aliasPrefix = "calico-cni/"

// The kernel takes 255 bytes of alias. Three parts of at most 71 bytes, the
// prefix and two slashes always fit.
const (
	aliasMax     = 255
	aliasPartMax = 71
)

// Alias is the text that ADD writes on the host interface, so that later verbs
// know whose it is: calico-cni/<network>/<containerID>/<ifname>. If that is
// over 255 bytes, each part over 71 bytes is replaced by its digest.
func (a Attachment) Alias() string {
	alias := aliasPrefix + a.Network + "/" + a.ContainerID + "/" + a.IfName
	if len(alias) <= aliasMax {
		return alias
	}
	return aliasPrefix + aliasPart(a.Network) + "/" + aliasPart(a.ContainerID) + "/" + aliasPart(a.IfName)
}

func aliasPart(part string) string {
	if len(part) <= aliasPartMax {
		return part
	}
	sum := sha256.Sum256([]byte(part))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Owner is what an alias tells. Its parts may be digests, so an Owner is
// compared with an Attachment only through the methods here.
type Owner struct {
	network     string
	containerID string
	ifName      string
}

// ParseAlias reads an alias. ok is false for every alias that is not of our
// form; such an alias is no evidence of anything.
func ParseAlias(alias string) (owner Owner, ok bool) {
	rest, found := strings.CutPrefix(alias, aliasPrefix)
	if !found {
		return Owner{}, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return Owner{}, false
	}
	return Owner{network: parts[0], containerID: parts[1], ifName: parts[2]}, true
}

// samePart reports whether an alias part names value, written out or digested.
func samePart(part, value string) bool {
	return part == value || part == aliasPart(value)
}

// OnlyInterface is the owner of an interface that is the container's only one in
// its network, so that nothing tells its name in the pod (Windows).
func OnlyInterface(network, containerID string) Owner {
	return Owner{network: network, containerID: containerID}
}

// Is reports whether the alias names this container and interface. The network
// does not count: a runtime's container id and interface name are one
// attachment whatever the network is called now.
func (o Owner) Is(a Attachment) bool {
	return o.HasContainer(a.ContainerID) && (o.ifName == "" || samePart(o.ifName, a.IfName))
}

// HasContainer reports whether the alias names this container.
func (o Owner) HasContainer(containerID string) bool { return samePart(o.containerID, containerID) }

// InNetwork reports whether the alias names this network.
func (o Owner) InNetwork(network string) bool { return samePart(o.network, network) }

// ContainerID is the container as the alias spells it, perhaps as a digest.
func (o Owner) ContainerID() string { return o.containerID }

// IfName is the pod's interface name as the alias spells it.
func (o Owner) IfName() string { return o.ifName }

// String describes the owner for messages.
func (o Owner) String() string {
	if o.ifName == "" {
		return "container " + o.containerID + ", network " + o.network
	}
	return "container " + o.containerID + ", interface " + o.ifName + ", network " + o.network
}
