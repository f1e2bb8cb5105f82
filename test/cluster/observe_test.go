//go:build kubernetes && linux

package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"calico-cni/test/cluster/node"
)

// addresses of a record: the allocations of one container.
type allocation struct {
	node, handle string
	address      netip.Addr
}

// allocations reads all blocks.
func (s *scene) allocations() []allocation {
	s.Helper()
	var found []allocation
	for _, block := range s.list(crds + "ipamblocks") {
		prefix := netip.MustParsePrefix(fmt.Sprint(at(block, "spec", "cidr")))
		ordinals, _ := at(block, "spec", "allocations").([]any)
		attributes, _ := at(block, "spec", "attributes").([]any)
		address := prefix.Addr()
		for _, ordinal := range ordinals {
			if ordinal != nil {
				var index int
				if _, err := fmt.Sscan(fmt.Sprint(ordinal), &index); err != nil || index >= len(attributes) {
					s.Fatalf("block %v: allocation with attribute %v of %d", prefix, ordinal, len(attributes))
				}
				attribute := attributes[index].(object)
				found = append(found, allocation{
					address: address, handle: fmt.Sprint(attribute["handle_id"]), node: fmt.Sprint(at(attribute, "secondary", "node")),
				})
			}
			address = address.Next()
		}
	}
	return found
}

// handles returns the ids of all handles.
func (s *scene) handles() []string {
	s.Helper()
	var found []string
	for _, handle := range s.list(crds + "ipamhandles") {
		found = append(found, fmt.Sprint(at(handle, "spec", "handleID")))
	}
	slices.Sort(found)
	return found
}

// families of addresses that a pod gets.
const families = 2

// holds checks the numbers: on every node exactly its live sandboxes have
// addresses, handles, interfaces, routes and notes, one of each and family.
func (s *scene) holds() {
	s.Helper()
	if err := s.numbers(); err != nil {
		s.Error(err)
	}
}

func (s *scene) numbers() error {
	var all []string
	for i, n := range s.nodes {
		sandboxes, err := s.onNetwork(i)
		if err != nil {
			return err
		}
		if err := s.nodeHolds(n, sandboxes); err != nil {
			return fmt.Errorf("%s with %d sandboxes: %w", n.Name, len(sandboxes), err)
		}
		for _, sandbox := range sandboxes {
			all = append(all, handleOf(sandbox))
		}
	}
	slices.Sort(all)
	if handles := s.handles(); !slices.Equal(handles, all) {
		return fmt.Errorf("handles %v, want those of the sandboxes %v", handles, all)
	}
	if allocated := len(s.allocations()); allocated != families*len(all) {
		return fmt.Errorf("%d allocations for %d sandboxes of %d families", allocated, len(all), families)
	}
	return nil
}

// onNetwork lists a node's sandboxes that are not on the node's own network.
func (s *scene) onNetwork(i int) ([]*node.Sandbox, error) {
	all, err := s.runtimes[i].Sandboxes(s.Context())
	return slices.DeleteFunc(all, func(s *node.Sandbox) bool { return len(s.Addresses) == 0 }), err
}

func handleOf(sandbox *node.Sandbox) string { return "k8s-pod-network." + sandbox.ID }

// nodeHolds compares what a node has with its sandboxes.
func (s *scene) nodeHolds(n *node.Node, sandboxes []*node.Sandbox) error {
	var want []string
	for _, sandbox := range sandboxes {
		want = append(want, sandbox.Addresses...)
	}
	var allocated []string
	for _, a := range s.allocations() {
		if a.node == n.Name {
			allocated = append(allocated, a.address.String())
		}
	}
	routed, err := s.podRoutes(n)
	if err != nil {
		return err
	}
	slices.Sort(want)
	slices.Sort(allocated)
	if !slices.Equal(allocated, want) {
		return fmt.Errorf("allocated %v, the sandboxes have %v", allocated, want)
	}
	if !slices.Equal(routed, want) {
		return fmt.Errorf("routes to %v, the sandboxes have %v", routed, want)
	}
	links, err := n.Links("cali")
	if err != nil {
		return err
	}
	if len(links) != len(sandboxes) {
		return fmt.Errorf("%d interfaces %v", len(links), names(links))
	}
	notes, err := os.ReadDir(n.File("/var/lib/calico/cni"))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if len(notes) != len(sandboxes) {
		return fmt.Errorf("%d attachment notes %v", len(notes), notes)
	}
	return nil
}

func names(links []netlink.Link) []string {
	var found []string
	for _, link := range links {
		found = append(found, link.Attrs().Name)
	}
	return found
}

// podRoutes returns the addresses that a node has host routes to by interfaces
// of pods.
func (s *scene) podRoutes(n *node.Node) ([]string, error) {
	links, err := n.Links("cali")
	if err != nil {
		return nil, err
	}
	indexes := map[int]bool{}
	for _, link := range links {
		indexes[link.Attrs().Index] = true
	}
	routes, err := n.Routes()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, route := range routes {
		ofPod := indexes[route.LinkIndex] && route.Dst != nil && route.Table == 254
		if ofPod && !route.Dst.IP.IsLinkLocalUnicast() && !route.Dst.IP.IsMulticast() {
			found = append(found, route.Dst.IP.String())
		}
	}
	slices.Sort(found)
	return found, nil
}

// inOwnBlocks checks that addresses lie in blocks of a node.
func (s *scene) inOwnBlocks(n *node.Node, addresses []string) {
	s.Helper()
	var blocks []*net.IPNet
	for _, block := range s.list(crds + "ipamblocks") {
		if at(block, "spec", "affinity") == "host:"+n.Name {
			_, prefix, err := net.ParseCIDR(fmt.Sprint(at(block, "spec", "cidr")))
			if err != nil {
				s.Fatal(err)
			}
			blocks = append(blocks, prefix)
		}
	}
	for _, address := range addresses {
		if !slices.ContainsFunc(blocks, func(b *net.IPNet) bool { return b.Contains(net.ParseIP(address)) }) {
			s.Errorf("%s of a pod on %s is in none of its blocks %v", address, n.Name, blocks)
		}
	}
}

// route gives every node the routes to the pods of the others, as
// docs/routes.md tells.
func (s *scene) route() {
	s.Helper()
	for _, n := range s.nodes {
		if _, err := n.Run("sh", "-c", "set -e; /opt/cni/bin/calico-ipam routes --protocol=80 >/run/routes; sh -e /run/routes"); err != nil {
			s.Fatal(err)
		}
	}
}
