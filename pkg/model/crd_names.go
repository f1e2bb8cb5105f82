package model

import (
	"crypto/sha256"
	"crypto/sha3"
	"encoding/base32"
	"encoding/hex"
	"net/netip"
	"strings"
)

// The labels by which a host's affinities are found (datastore contract 4.3).
const (
	LabelHostHash     = "projectcalico.org/hostname-hash"
	LabelAffinityType = "projectcalico.org/affinity-type"
	LabelIPVersion    = "projectcalico.org/ip-version"
)

const (
	// objectNameMax is the length from which an affinity's name is cut.
	objectNameMax = 253
	// digestDigits is how much of a digest keeps cut names apart.
	digestDigits = 11
)

// CIDRName is the name of a block's custom resource (datastore contract 3.4).
func CIDRName(cidr netip.Prefix) string {
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr.String())
}

// ParseCIDRName is the inverse of CIDRName, for lists that hold no more than
// names. Only the CIDR whose computed name is exactly this one is returned.
func ParseCIDRName(name string) (cidr netip.Prefix, ok bool) {
	cut := strings.LastIndexByte(name, '-')
	if cut < 0 {
		return netip.Prefix{}, false
	}
	for _, separator := range []string{".", ":"} {
		text := strings.ReplaceAll(name[:cut], "-", separator) + "/" + name[cut+1:]
		cidr, err := netip.ParsePrefix(text)
		if err == nil && cidr == cidr.Masked() && CIDRName(cidr) == name {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}

// ObjectName is the name of the affinity's custom resource. The type is no
// part of it.
func (k AffinityKey) ObjectName() string {
	block := CIDRName(k.CIDR)
	name := k.Host + "-" + block
	if len(name) < objectNameMax {
		return name
	}
	sum := sha256.Sum256([]byte(k.Host + "+" + block))
	host := k.Host[:objectNameMax-1-len(block)-digestDigits-len("--")]
	return host + "-" + block + "-" + hex.EncodeToString(sum[:])[:digestDigits]
}

// Labels are what every write of the affinity must carry: without them the
// block is invisible to its own node.
func (k AffinityKey) Labels() map[string]string {
	return AffinityLabels(k.Type, k.Host, FamilyOf(k.CIDR.Addr()))
}

// AffinityLabels are the labels of the affinities of an owner and family; with
// an empty host, those of every owner of the type.
func AffinityLabels(kind, host string, family Family) map[string]string {
	labels := map[string]string{LabelAffinityType: kind, LabelIPVersion: "4"}
	if family == IPv6 {
		labels[LabelIPVersion] = "6"
	}
	if host != "" {
		labels[LabelHostHash] = HostHash(host)
	}
	return labels
}

// HostHash is a host name as the value of a label, which a name may be too
// long for.
func HostHash(host string) string {
	sum := sha3.Sum256([]byte(host))
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
}

// ObjectName is the name of the handle's custom resource. The id itself is
// kept in the object.
func (k HandleKey) ObjectName() string { return strings.ToLower(k.ID) }
