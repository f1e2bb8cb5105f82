package model

import (
	"encoding/json"
	"net/netip"
)

// nodeAddress is an entry of spec.addresses: what the platform says of a node.
type nodeAddress struct {
	Address string `json:"address"`
	Type    string `json:"type"`
}

// internalIP is the type of the address by which a cluster's nodes reach each
// other.
const internalIP = "InternalIP"

// Address is where other nodes reach this one: the address that Calico uses
// between nodes (data store contract 4.7), else the platform's internal one.
// The zero Addr: it has none of this family.
func (n *Node) Address(family Family) netip.Addr {
	var bgp struct {
		IPv4 string `json:"ipv4Address"`
		IPv6 string `json:"ipv6Address"`
	}
	_ = json.Unmarshal(n.specUnknown["bgp"], &bgp) // absent is none
	for _, text := range []string{bgp.IPv4, bgp.IPv6} {
		if addr := reachable(text, family); addr.IsValid() {
			return addr
		}
	}
	var addresses []nodeAddress
	_ = json.Unmarshal(n.specUnknown["addresses"], &addresses) // absent is none
	for _, address := range addresses {
		if addr := reachable(address.Address, family); addr.IsValid() && address.Type == internalIP {
			return addr
		}
	}
	return netip.Addr{}
}

// reachable parses an address, with or without mask, that another host may be
// given; link-local ones mean nothing without an interface.
func reachable(text string, family Family) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return netip.Addr{}
		}
		addr = prefix.Addr()
	}
	if addr = addr.Unmap(); FamilyOf(addr) != family || !addr.IsGlobalUnicast() {
		return netip.Addr{}
	}
	return addr.WithZone("")
}
