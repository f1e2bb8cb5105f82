package upgrade

import (
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/model"
)

// network is the name of the network whose pods are moved, which begins their
// handles.
const network = "k8s-pod-network"

// file is one of host-local's files.
type file struct{ name, content string }

// step is what is done about one file. What is not booked is only removed.
type step struct {
	name string
	// addr is the address that is booked first, for a pod; invalid: none.
	addr           netip.Addr
	handleID       string
	namespace, pod string
	// strange says why the file makes no sense.
	strange string
}

// plan decides on the files of host-local, in the order of their names, given
// the pods of the node. A file that is no longer any pod's only goes.
func plan(files []file, pods []*model.Pod) []step {
	byAddr := map[netip.Addr]*model.Pod{}
	for _, pod := range pods {
		for _, text := range pod.Networks {
			if prefix, err := netip.ParsePrefix(text); err == nil && !pod.HostNetwork {
				byAddr[prefix.Addr()] = pod
			}
		}
	}
	var steps []step
	for _, f := range files {
		if s, ok := stepFor(f, byAddr); ok {
			steps = append(steps, s)
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return strings.Compare(a.name, b.name) })
	return steps
}

// stepFor returns false for host-local's lock, which is in use.
func stepFor(f file, pods map[netip.Addr]*model.Pod) (step, bool) {
	switch {
	case strings.Contains(f.name, "last"):
		return step{name: f.name}, true
	case strings.Contains(f.name, "lock"):
		return step{}, false
	}
	addr, err := netip.ParseAddr(f.name)
	if err != nil {
		return step{name: f.name, strange: "its name is no address"}, true
	}
	pod := pods[addr]
	if pod == nil {
		return step{name: f.name}, true
	}
	namespace, name := pod.Metadata.Namespace, pod.Metadata.Name
	return step{name: f.name, addr: addr, handleID: handleOf(f, namespace, name), namespace: namespace, pod: name}, true
}

// handleOf is the handle that the container's DEL releases. If the file does
// not tell the container, because its writer was killed, it is that of Calico
// before v3, which DEL releases too.
func handleOf(f file, namespace, pod string) string {
	first, _, _ := strings.Cut(f.content, "\n")
	if container := strings.TrimSpace(first); container != "" {
		return network + "." + container
	}
	return namespace + "." + pod
}

// tunnelAddress is the address that the node's IPIP tunnel needs: the first one
// of its pods' range, which host-local gave to nobody. ok is false if the node
// has one already, or its range is not of IPv4.
func tunnelAddress(node *model.Node) (addr netip.Addr, ok bool) {
	cidrs := node.PodCIDRs()
	if node.IPIPTunnel() != "" || len(cidrs) == 0 {
		return netip.Addr{}, false
	}
	cidr, err := netip.ParsePrefix(cidrs[0])
	if err != nil || !cidr.Addr().Is4() {
		return netip.Addr{}, false
	}
	return cidr.Masked().Addr().Next(), true
}
