package model

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Uses that a pool may allow.
const (
	UseWorkload     = "Workload"
	UseTunnel       = "Tunnel"
	UseLoadBalancer = "LoadBalancer"
)

// AssignmentManual keeps a pool for those who ask for it by name or CIDR.
const AssignmentManual = "Manual"

// EncapsulationNever is the mode of a pool without IPIP or VXLAN.
const EncapsulationNever = "Never"

// IPPool is a range that blocks are cut from (datastore contract 4.1). The
// defaults of old objects are applied when it is read.
type IPPool struct {
	Metadata Metadata
	// RawCIDR is the text as written, perhaps not parsable.
	RawCIDR           string
	BlockSize         int
	IPIPMode          string
	VXLANMode         string
	NATOutgoing       bool
	Disabled          bool
	NodeSelector      string
	NamespaceSelector string
	AllowedUses       []string
	AssignmentMode    string
	// NotAllocatable is true if a condition says that nothing may be taken.
	NotAllocatable bool

	unknown, specUnknown Unknown
}

type poolSpec struct {
	CIDR              string   `json:"cidr"`
	BlockSize         int      `json:"blockSize,omitempty"`
	IPIPMode          string   `json:"ipipMode,omitempty"`
	VXLANMode         string   `json:"vxlanMode,omitempty"`
	NATOutgoing       bool     `json:"natOutgoing,omitempty"`
	Disabled          bool     `json:"disabled,omitempty"`
	NodeSelector      string   `json:"nodeSelector,omitempty"`
	NamespaceSelector string   `json:"namespaceSelector,omitempty"`
	AllowedUses       []string `json:"allowedUses,omitempty"`
	AssignmentMode    string   `json:"assignmentMode,omitempty"`
}

type poolStatus struct {
	Conditions []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	} `json:"conditions"`
}

// CIDR parses the pool's range. Host bits, or an address that no address of a
// pod could be, are errors that name the pool.
func (p *IPPool) CIDR() (netip.Prefix, error) {
	cidr, err := netip.ParsePrefix(p.RawCIDR)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("pool %s: %q is not a CIDR: %w", p.Metadata.Name, p.RawCIDR, err)
	}
	if cidr != cidr.Masked() {
		return netip.Prefix{}, fmt.Errorf("pool %s: %s has host bits set; the range would be %s", p.Metadata.Name, p.RawCIDR, cidr.Masked())
	}
	if cidr.Overlaps(mappedRange()) {
		return netip.Prefix{}, fmt.Errorf("pool %s: %s holds IPv4 addresses written as IPv6, which no pod can have", p.Metadata.Name, p.RawCIDR)
	}
	return cidr, nil
}

// mappedRange is ::ffff:0:0/96, the IPv4 addresses written as IPv6.
func mappedRange() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)
}

// Allows reports whether addresses of the pool may be used so.
func (p *IPPool) Allows(use string) bool { return slices.Contains(p.AllowedUses, use) }

// Enabled reports whether new addresses may be taken from the pool at all.
func (p *IPPool) Enabled() bool {
	return !p.Disabled && !p.Metadata.Deleting && !p.NotAllocatable
}

// MarshalJSON writes the pool's wire form.
func (p *IPPool) MarshalJSON() ([]byte, error) {
	return encodeResource(KindIPPool, p.Metadata, poolSpec{
		CIDR: p.RawCIDR, BlockSize: p.BlockSize, IPIPMode: p.IPIPMode, VXLANMode: p.VXLANMode,
		NATOutgoing: p.NATOutgoing, Disabled: p.Disabled, NodeSelector: p.NodeSelector,
		NamespaceSelector: p.NamespaceSelector, AllowedUses: p.AllowedUses, AssignmentMode: p.AssignmentMode,
	}, p.specUnknown, p.unknown)
}

// UnmarshalJSON reads the pool's wire form and applies the defaults of old
// objects.
func (p *IPPool) UnmarshalJSON(data []byte) error {
	var spec poolSpec
	metadata, specUnknown, unknown, err := decodeResource(data, &spec)
	if err != nil {
		return err
	}
	*p = IPPool{
		Metadata: metadata, RawCIDR: spec.CIDR, BlockSize: spec.BlockSize, IPIPMode: spec.IPIPMode,
		VXLANMode: spec.VXLANMode, NATOutgoing: spec.NATOutgoing, Disabled: spec.Disabled,
		NodeSelector: spec.NodeSelector, NamespaceSelector: spec.NamespaceSelector,
		AllowedUses: spec.AllowedUses, AssignmentMode: spec.AssignmentMode,
		unknown: unknown, specUnknown: specUnknown,
	}
	if raw, ok := unknown["status"]; ok {
		var status poolStatus
		if err := json.Unmarshal(raw, &status); err != nil {
			return fmt.Errorf("status: %w", err)
		}
		for _, condition := range status.Conditions {
			if condition.Type == "Allocatable" && condition.Status == "False" {
				p.NotAllocatable = true
			}
		}
	}
	p.ApplyDefaults()
	return nil
}

// ApplyDefaults fills the members that old objects, and short declarations,
// lack.
func (p *IPPool) ApplyDefaults() {
	if p.BlockSize == 0 {
		p.BlockSize = 26
		if strings.Contains(p.RawCIDR, ":") {
			p.BlockSize = 122
		}
	}
	if len(p.AllowedUses) == 0 {
		p.AllowedUses = []string{UseWorkload, UseTunnel}
	}
	for _, mode := range []*string{&p.IPIPMode, &p.VXLANMode} {
		if *mode == "" {
			*mode = EncapsulationNever
		}
	}
	if p.NodeSelector == "" {
		p.NodeSelector = "all()"
	}
	if p.AssignmentMode == "" {
		p.AssignmentMode = "Automatic"
	}
}

// IPReservation lists addresses that are never handed out automatically.
type IPReservation struct {
	Metadata Metadata
	// CIDRs as written: single addresses, blanks and malformed entries occur.
	CIDRs []string

	unknown, specUnknown Unknown
}

type reservationSpec struct {
	CIDRs []string `json:"reservedCIDRs"`
}

// MarshalJSON writes the reservation's wire form.
func (r *IPReservation) MarshalJSON() ([]byte, error) {
	return encodeResource(KindIPReservation, r.Metadata, reservationSpec{CIDRs: r.CIDRs}, r.specUnknown, r.unknown)
}

// UnmarshalJSON reads the reservation's wire form.
func (r *IPReservation) UnmarshalJSON(data []byte) error {
	var spec reservationSpec
	metadata, specUnknown, unknown, err := decodeResource(data, &spec)
	if err != nil {
		return err
	}
	*r = IPReservation{Metadata: metadata, CIDRs: spec.CIDRs, unknown: unknown, specUnknown: specUnknown}
	return nil
}

// Prefixes parses the reservation; entries that do not parse are returned
// apart, for a log line.
func (r *IPReservation) Prefixes() (cidrs []netip.Prefix, malformed []string) {
	for _, entry := range r.CIDRs {
		text := strings.TrimSpace(entry)
		if addr, err := netip.ParseAddr(text); err == nil {
			addr = addr.Unmap()
			cidrs = append(cidrs, netip.PrefixFrom(addr, addr.BitLen()))
		} else if cidr, err := netip.ParsePrefix(text); err == nil {
			cidrs = append(cidrs, unmapped(cidr.Masked()))
		} else {
			malformed = append(malformed, entry)
		}
	}
	return cidrs, malformed
}

// unmapped is the IPv4 range that an IPv6 text may stand for.
func unmapped(cidr netip.Prefix) netip.Prefix {
	if cidr.Addr().Is4In6() && cidr.Bits() >= 96 {
		return netip.PrefixFrom(cidr.Addr().Unmap(), cidr.Bits()-96)
	}
	return cidr
}
