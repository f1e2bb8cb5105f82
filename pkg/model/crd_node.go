package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
)

// annotationPrefix begins the annotations of a core Node that are Calico's.
const annotationPrefix = "projectcalico.org/"

// coreNode is what is read of a Node of Kubernetes.
type coreNode struct {
	Metadata Unknown `json:"metadata"`
	Spec     struct {
		PodCIDR  string   `json:"podCIDR"`
		PodCIDRs []string `json:"podCIDRs"`
	} `json:"spec"`
	Status struct {
		Addresses []nodeAddress `json:"addresses"`
	} `json:"status"`
}

// nodeFields are the members of a Calico Node that annotations of the core
// Node hold (datastore contract 4.7): path to annotation.
var nodeFields = []struct {
	annotation string
	path       []string
}{
	{"IPv4Address", []string{"spec", "bgp", "ipv4Address"}},
	{"IPv6Address", []string{"spec", "bgp", "ipv6Address"}},
	{"IPv4IPIPTunnelAddr", []string{"spec", "bgp", "ipv4IPIPTunnelAddr"}},
	{"RouteReflectorClusterID", []string{"spec", "bgp", "routeReflectorClusterID"}},
	{"IPv4VXLANTunnelAddr", []string{"spec", "ipv4VXLANTunnelAddr"}},
	{"VXLANTunnelMACAddr", []string{"spec", "vxlanTunnelMACAddr"}},
	{"IPv6VXLANTunnelAddr", []string{"spec", "ipv6VXLANTunnelAddr"}},
	{"VXLANTunnelMACAddrV6", []string{"spec", "vxlanTunnelMACAddrV6"}},
	{"IPv4WireguardInterfaceAddr", []string{"spec", "wireguard", "interfaceIPv4Address"}},
	{"IPv6WireguardInterfaceAddr", []string{"spec", "wireguard", "interfaceIPv6Address"}},
	{"WireguardPublicKey", []string{"status", "wireguardPublicKey"}},
	{"WireguardPublicKeyV6", []string{"status", "wireguardPublicKeyV6"}},
}

// DecodeCoreNode projects a Node of Kubernetes to Calico's. Its labels are the
// Calico-only ones overlaid by the native ones.
func DecodeCoreNode(object []byte) (*Node, error) {
	var core coreNode
	if err := json.Unmarshal(object, &core); err != nil {
		return nil, fmt.Errorf("decoding a node: %w", err)
	}
	annotations := texts(core.Metadata["annotations"])
	document := map[string]any{"metadata": nodeMetadata(core.Metadata, annotations)}
	for _, field := range nodeFields {
		if value := annotations[annotationPrefix+field.annotation]; value != "" {
			place(document, field.path, value)
		}
	}
	if number, err := strconv.ParseUint(annotations[annotationPrefix+"ASNumber"], 10, 32); err == nil {
		place(document, []string{"spec", "bgp", "asNumber"}, number)
	}
	if raw := json.RawMessage(annotations[annotationPrefix+"Interfaces"]); json.Valid(raw) {
		place(document, []string{"spec", "interfaces"}, raw)
	}
	if addresses := core.Status.Addresses; len(addresses) > 0 {
		place(document, []string{"spec", "addresses"}, addresses)
	}
	if cidrs := core.podCIDRs(); len(cidrs) > 0 {
		place(document, []string{"status", "podCIDRs"}, cidrs)
	}
	body, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("decoding a node: %w", err)
	}
	node := &Node{}
	if err := json.Unmarshal(body, node); err != nil {
		return nil, fmt.Errorf("decoding a node: %w", err)
	}
	return node, nil
}

func (n coreNode) podCIDRs() []string {
	if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		return []string{n.Spec.PodCIDR}
	}
	return n.Spec.PodCIDRs
}

// nodeMetadata separates Calico's labels and annotations from the native ones
// in a way that a writer can undo: the native labels are kept in an annotation.
func nodeMetadata(native Unknown, annotations map[string]string) map[string]any {
	own := texts(json.RawMessage(annotations[annotationPrefix+"annotations"]))
	labels := texts(json.RawMessage(annotations[annotationPrefix+"labels"]))
	nativeLabels := texts(native["labels"])
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, nativeLabels)
	if own == nil {
		own = map[string]string{}
	}
	if body, err := json.Marshal(nativeLabels); err == nil && nativeLabels != nil {
		own[annotationPrefix+"kube-labels"] = string(body)
	}
	metadata := map[string]any{"labels": labels, "annotations": own}
	for _, name := range []string{"name", "uid", "creationTimestamp"} {
		if value, ok := native[name]; ok {
			metadata[name] = value
		}
	}
	return metadata
}

func place(document map[string]any, path []string, value any) {
	for ; len(path) > 1; path = path[1:] {
		inner, ok := document[path[0]].(map[string]any)
		if !ok {
			inner = map[string]any{}
			document[path[0]] = inner
		}
		document = inner
	}
	document[path[0]] = value
}

// PodCIDRs are the ranges that Kubernetes gave to the node.
func (n *Node) PodCIDRs() []string {
	var status struct {
		PodCIDRs []string `json:"podCIDRs"`
	}
	_ = json.Unmarshal(n.unknown["status"], &status) // absent is none
	return status.PodCIDRs
}

// IPIPTunnel is the address of the node's IPIP tunnel; empty if it has none.
func (n *Node) IPIPTunnel() string {
	var bgp struct {
		Address string `json:"ipv4IPIPTunnelAddr"`
	}
	_ = json.Unmarshal(n.specUnknown["bgp"], &bgp) // absent is none
	return bgp.Address
}

// WithIPIPTunnel returns a copy of the node with this address of its IPIP
// tunnel.
func (n *Node) WithIPIPTunnel(address string) (*Node, error) {
	return n.with("bgp", "ipv4IPIPTunnelAddr", address)
}

// WithVXLANTunnel returns a copy of the node with this address and MAC of its
// VXLAN tunnel.
func (n *Node) WithVXLANTunnel(address, mac string) (*Node, error) {
	out, err := n.with("", "ipv4VXLANTunnelAddr", address)
	if err != nil {
		return nil, err
	}
	return out.with("", "vxlanTunnelMACAddr", mac)
}

// VXLANTunnel is the address and MAC of the node's VXLAN tunnel, empty if it
// has none.
func (n *Node) VXLANTunnel() (address, mac string) {
	_ = json.Unmarshal(n.specUnknown["ipv4VXLANTunnelAddr"], &address) // absent is empty
	_ = json.Unmarshal(n.specUnknown["vxlanTunnelMACAddr"], &mac)
	return address, mac
}

// with sets a member of the spec, or of an object in it.
func (n *Node) with(object, member, value string) (*Node, error) {
	out := *n
	out.specUnknown = Unknown{}
	maps.Copy(out.specUnknown, n.specUnknown)
	if object == "" {
		out.specUnknown[member] = quoted(value)
		return &out, nil
	}
	inner := Unknown{}
	if raw, ok := out.specUnknown[object]; ok {
		if err := json.Unmarshal(raw, &inner); err != nil {
			return nil, fmt.Errorf("node %s: %s: %w", n.Metadata.Name, object, err)
		}
	}
	inner[member] = quoted(value)
	body, err := json.Marshal(inner)
	if err != nil {
		return nil, fmt.Errorf("node %s: %s: %w", n.Metadata.Name, object, err)
	}
	out.specUnknown[object] = body
	return &out, nil
}

// NodeAnnotations are the annotations by which a core Node says what the node
// does; an empty one is to be removed.
func NodeAnnotations(node *Node) (map[string]string, error) {
	body, err := json.Marshal(node)
	if err != nil {
		return nil, fmt.Errorf("encoding node %s: %w", node.Metadata.Name, err)
	}
	annotations := map[string]string{}
	for _, field := range nodeFields {
		raw := json.RawMessage(body)
		for _, name := range field.path {
			inner := Unknown{}
			_ = json.Unmarshal(raw, &inner) // absent is empty
			raw = inner[name]
		}
		var value string
		_ = json.Unmarshal(raw, &value) // absent is empty
		annotations[annotationPrefix+field.annotation] = value
	}
	return annotations, nil
}
