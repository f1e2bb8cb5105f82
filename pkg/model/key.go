package model

import (
	"fmt"
	"net/netip"
	"strings"
)

// Key names one object. Keys are comparable: two keys of the same object are
// equal, so they serve as map keys.
type Key interface {
	// Path is the object's key in etcd and in the embedded file
	// (datastore contract, section 2).
	Path() string
	// String names the object for a message.
	String() string
}

// BlockKey is the key of a block. The CIDR is masked.
type BlockKey struct{ CIDR netip.Prefix }

// AffinityKey is the key of a host's claim on a block.
type AffinityKey struct {
	// Type is AffinityHost or AffinityVirtual.
	Type string
	Host string
	CIDR netip.Prefix
}

// HostMarkerKey is the key by which old releases marked a host that had
// blocks. It is only ever deleted.
type HostMarkerKey struct{ Host string }

// HandleKey is the key of a handle.
type HandleKey struct{ ID string }

// IPAMConfigKey is the key of the one IPAM configuration.
type IPAMConfigKey struct{}

// ResourceKey is the key of an object of Calico's v3 resource tree.
type ResourceKey struct {
	Kind Kind
	// Namespace is empty for cluster-wide kinds.
	Namespace string
	Name      string
}

// Kind is the kind of a v3 resource.
type Kind string

// The kinds in use.
const (
	KindIPPool             Kind = "IPPool"
	KindIPReservation      Kind = "IPReservation"
	KindNode               Kind = "Node"
	KindClusterInformation Kind = "ClusterInformation"
	KindProfile            Kind = "Profile"
	KindWorkloadEndpoint   Kind = "WorkloadEndpoint"
)

// Kinds lists every kind in use.
func Kinds() []Kind {
	return []Kind{KindIPPool, KindIPReservation, KindNode, KindClusterInformation, KindProfile, KindWorkloadEndpoint}
}

// Plural is the kind's name in keys.
func (k Kind) Plural() string { return strings.ToLower(string(k)) + "s" }

// Namespaced reports whether objects of the kind live in a namespace.
func (k Kind) Namespaced() bool {
	return k == KindWorkloadEndpoint || k == KindPod || k == KindVirtualMachine || k == KindVirtualMachineInstance
}

// Affinity types.
const (
	AffinityHost    = "host"
	AffinityVirtual = "virtual"
)

// The roots of the keyspace.
const (
	ipamRoot     = "/calico/ipam/v2/"
	blockRoot    = ipamRoot + "assignment/"
	handleRoot   = ipamRoot + "handle/"
	configPath   = ipamRoot + "config"
	resourceRoot = "/calico/resources/v3/projectcalico.org/"
)

// BlockPrefix begins the path of every block of a family. What follows is the
// CIDR's text, with "-" for "/".
func BlockPrefix(family Family) string { return fmt.Sprintf("%sipv%d/block/", blockRoot, family) }

// AffinityPrefix begins the path of every affinity of an owner and family.
func AffinityPrefix(kind, host string, family Family) string {
	return fmt.Sprintf("%s%s/%s/ipv%d/block/", ipamRoot, kind, host, family)
}

// AffinityTypePrefix begins the path of every affinity of a type.
func AffinityTypePrefix(kind string) string { return ipamRoot + kind + "/" }

// HandlePrefix begins the path of every handle.
func HandlePrefix() string { return handleRoot }

// ResourcePrefix begins the path of every object of a kind (and namespace).
func ResourcePrefix(kind Kind, namespace string) string {
	prefix := resourceRoot + kind.Plural() + "/"
	if namespace != "" {
		prefix += namespace + "/"
	}
	return prefix
}

func cidrText(cidr netip.Prefix) string { return strings.Replace(cidr.String(), "/", "-", 1) }

// Path implements Key.
func (k BlockKey) Path() string { return BlockPrefix(FamilyOf(k.CIDR.Addr())) + cidrText(k.CIDR) }

func (k BlockKey) String() string { return "block " + k.CIDR.String() }

// Path implements Key.
func (k AffinityKey) Path() string {
	return AffinityPrefix(k.Type, k.Host, FamilyOf(k.CIDR.Addr())) + cidrText(k.CIDR)
}

// Owner is the owner string that a block of this affinity carries.
func (k AffinityKey) Owner() string { return k.Type + ":" + k.Host }

func (k AffinityKey) String() string {
	return "affinity of " + k.Owner() + " for block " + k.CIDR.String()
}

// Path implements Key.
func (k HostMarkerKey) Path() string { return AffinityTypePrefix(AffinityHost) + k.Host }

func (k HostMarkerKey) String() string { return "marker of host " + k.Host }

// Path implements Key.
func (k HandleKey) Path() string { return handleRoot + k.ID }

func (k HandleKey) String() string { return "handle " + k.ID }

// Path implements Key.
func (IPAMConfigKey) Path() string { return configPath }

func (IPAMConfigKey) String() string { return "IPAM configuration" }

// Path implements Key.
func (k ResourceKey) Path() string { return ResourcePrefix(k.Kind, k.Namespace) + k.Name }

func (k ResourceKey) String() string {
	if k.Namespace != "" {
		return string(k.Kind) + " " + k.Namespace + "/" + k.Name
	}
	return string(k.Kind) + " " + k.Name
}

// ParsePath is the inverse of Key.Path. ok is false for a path that is no
// object's, or whose parts do not parse.
func ParsePath(path string) (key Key, ok bool) {
	switch {
	case path == configPath:
		return IPAMConfigKey{}, true
	case strings.HasPrefix(path, blockRoot):
		return parseBlockPath(strings.TrimPrefix(path, blockRoot))
	case strings.HasPrefix(path, handleRoot):
		id := strings.TrimPrefix(path, handleRoot)
		return HandleKey{ID: id}, id != "" && !strings.Contains(id, "/")
	case strings.HasPrefix(path, ipamRoot):
		return parseAffinityPath(strings.TrimPrefix(path, ipamRoot))
	case strings.HasPrefix(path, resourceRoot):
		return parseResourcePath(strings.TrimPrefix(path, resourceRoot))
	}
	return nil, false
}

func parseBlockPath(rest string) (Key, bool) {
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[1] != "block" {
		return nil, false
	}
	cidr, ok := parseCIDRText(parts[2], parts[0])
	return BlockKey{CIDR: cidr}, ok
}

func parseAffinityPath(rest string) (Key, bool) {
	parts := strings.Split(rest, "/")
	if len(parts) == 2 && parts[0] == AffinityHost {
		return HostMarkerKey{Host: parts[1]}, parts[1] != ""
	}
	if len(parts) != 5 || parts[3] != "block" || parts[1] == "" {
		return nil, false
	}
	kind := parts[0]
	if kind != AffinityHost && kind != AffinityVirtual && kind != "@" {
		return nil, false
	}
	cidr, ok := parseCIDRText(parts[4], parts[2])
	return AffinityKey{Type: kind, Host: parts[1], CIDR: cidr}, ok
}

func parseCIDRText(text, family string) (netip.Prefix, bool) {
	cidr, err := netip.ParsePrefix(strings.Replace(text, "-", "/", 1))
	if err != nil || cidr != cidr.Masked() || text != cidrText(cidr) || family != fmt.Sprintf("ipv%d", FamilyOf(cidr.Addr())) {
		return netip.Prefix{}, false
	}
	return cidr, true
}

func parseResourcePath(rest string) (Key, bool) {
	parts := strings.Split(rest, "/")
	readOnly := []Kind{KindNamespace, KindPod, KindVirtualMachine, KindVirtualMachineInstance, KindIPAMConfiguration}
	for _, kind := range append(Kinds(), readOnly...) {
		if parts[0] != kind.Plural() {
			continue
		}
		if kind.Namespaced() && len(parts) == 3 {
			return ResourceKey{Kind: kind, Namespace: parts[1], Name: parts[2]}, parts[1] != "" && parts[2] != ""
		}
		if !kind.Namespaced() && len(parts) == 2 {
			return ResourceKey{Kind: kind, Name: parts[1]}, parts[1] != ""
		}
	}
	return nil, false
}
