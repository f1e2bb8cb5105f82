package operator

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/model"
)

// network is what routes between nodes follow from.
type network struct {
	affinities map[model.AffinityKey]*model.Affinity
	blocks     map[netip.Prefix]*model.Block
	nodes      map[string]*model.Node
	// unread are the blocks, owned by the word of their affinity, that are
	// missing or make no sense, and why.
	unread map[model.AffinityKey]string
}

// place is a prefix and the node that it lies on.
type place struct {
	prefix netip.Prefix
	node   string
}

// route leads to a place by way of its node's address.
type route struct {
	Destination netip.Prefix `json:"destination"`
	Via         netip.Addr   `json:"via"`
	Node        string       `json:"node"`
}

// problem is a place that no route can lead to.
type problem struct {
	Destination netip.Prefix `json:"destination"`
	Node        string       `json:"node"`
	Reason      string       `json:"reason"`
}

func (p problem) String() string {
	return fmt.Sprintf("no route to %s on node %s: %s", p.Destination, p.Node, p.Reason)
}

// places are the blocks that a host owns for certain, and the addresses that
// are used on another node than their block's owner (IPAM contract 3.5, 14).
func (n network) places() []place {
	var places []place
	for key, affinity := range n.affinities {
		block := n.blocks[key.CIDR]
		if affinity.State.Confirmed() && block != nil && block.Affinity == key.Owner() && key.Type == model.AffinityHost {
			places = append(places, place{key.CIDR, key.Host})
		}
	}
	for _, block := range n.blocks {
		places = append(places, borrowedPlaces(block)...)
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(
			a.prefix.Addr().Compare(b.prefix.Addr()), // IPv4 is less than IPv6
			cmp.Compare(a.prefix.Bits(), b.prefix.Bits()), cmp.Compare(a.node, b.node))
	})
	return places
}

// borrowedPlaces: services' addresses lie on no node, and an address that is
// released or reserved has none.
func borrowedPlaces(block *model.Block) []place {
	if strings.HasPrefix(block.Affinity, model.AffinityVirtual+":") {
		return nil
	}
	var places []place
	for ordinal := range block.Allocations {
		holder := block.HolderOf(ordinal)
		if holder == nil || !holder.ReleasedAt.IsZero() {
			continue
		}
		if node := holder.Owner["node"]; node != "" && block.Affinity != model.AffinityHost+":"+node {
			addr := block.Addr(ordinal)
			places = append(places, place{netip.PrefixFrom(addr, addr.BitLen()), node})
		}
	}
	return places
}

// routes are what a node needs to reach every place on the other nodes, and
// the places that it cannot reach.
func (n network) routes(from string) ([]route, []problem) {
	routes, problems := []route{}, []problem{}
	for _, p := range n.places() {
		if p.node == from {
			continue
		}
		via, reason := n.nextHop(from, p)
		if reason != "" {
			problems = append(problems, problem{p.prefix, p.node, reason})
			continue
		}
		routes = append(routes, route{p.prefix, via, p.node})
	}
	for key, reason := range n.unread {
		if key.Host != from {
			problems = append(problems, problem{key.CIDR, key.Host, reason})
		}
	}
	slices.SortFunc(problems, compareProblems)
	return routes, problems
}

func compareProblems(a, b problem) int {
	return cmp.Or(a.Destination.Addr().Compare(b.Destination.Addr()), cmp.Compare(a.Destination.Bits(), b.Destination.Bits()),
		cmp.Compare(a.Node, b.Node), cmp.Compare(a.Reason, b.Reason))
}

func (n network) nextHop(from string, to place) (via netip.Addr, reason string) {
	node := n.nodes[to.node]
	if node == nil {
		return via, "the node does not exist; release what it left behind"
	}
	family := model.FamilyOf(to.prefix.Addr())
	via = node.Address(family)
	if !via.IsValid() {
		return via, fmt.Sprintf("the node has no %s address; set projectcalico.org/%sAddress of the Kubernetes Node, or spec.bgp.ip%sAddress of Calico's",
			family, family, strings.TrimPrefix(strings.ToLower(family.String()), "ip"))
	}
	if self := n.nodes[from]; self != nil && self.Address(family) == via {
		return netip.Addr{}, fmt.Sprintf("it has the same address as node %s, %s; correct one of them", from, via)
	}
	return via, ""
}

// allRoutes are the routes of several nodes.
type allRoutes struct {
	Nodes    []nodeRoutes `json:"nodes"`
	Problems []problem    `json:"problems"`
}

type nodeRoutes struct {
	Node   string  `json:"node"`
	Routes []route `json:"routes"`
}

// all are the routes of these nodes; a problem that several of them have is
// told once.
func (n network) all(nodes []string) allRoutes {
	out := allRoutes{Nodes: []nodeRoutes{}, Problems: []problem{}}
	for _, node := range nodes {
		routes, problems := n.routes(node)
		out.Nodes = append(out.Nodes, nodeRoutes{node, routes})
		out.Problems = append(out.Problems, problems...)
	}
	slices.SortFunc(out.Problems, compareProblems)
	out.Problems = slices.Compact(out.Problems)
	return out
}

// neededNodes are the nodes that places lie on.
func (n network) neededNodes() []string {
	names := map[string]bool{}
	for _, p := range n.places() {
		names[p.node] = true
	}
	return slices.Sorted(maps.Keys(names))
}
