package kubevirt

import (
	"net/netip"
	"slices"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

// Assignment is what a pod of a machine gets.
type Assignment struct {
	// Reused are addresses that the machine has. The pod becomes their owner.
	Reused []netip.Addr
	// Alternate: the pod becomes their alternate owner, since the machine
	// still runs in another one. The host gets no routes to them: the policy
	// agent moves these when the migration completes.
	Alternate bool
	// Missing are the families of which the machine gets an address now.
	Missing []model.Family
}

// Assign decides on any addresses of the families that are wanted. A machine
// that moves brings all that it has: its configuration does not change by that.
func (m *Machine) Assign(held []ipam.Allocation, wanted []model.Family) (Assignment, error) {
	if m.moving(held) {
		return m.moved(held, addressesOf(held))
	}
	var out Assignment
	for _, family := range wanted {
		of := slices.DeleteFunc(addressesOf(held), func(addr netip.Addr) bool { return model.FamilyOf(addr) != family })
		if len(of) == 0 {
			out.Missing = append(out.Missing, family)
		}
		out.Reused = append(out.Reused, of...)
	}
	return out, nil
}

// AssignAddress decides on one certain address. A machine has at most one of a
// family, and does not give it up for another.
func (m *Machine) AssignAddress(held []ipam.Allocation, wanted netip.Addr) (Assignment, error) {
	has := slices.Contains(addressesOf(held), wanted)
	if m.moving(held) {
		if !has && len(held) > 0 {
			return Assignment{}, m.taken(held, wanted)
		}
		return m.moved(held, []netip.Addr{wanted})
	}
	if has {
		return Assignment{Reused: []netip.Addr{wanted}}, nil
	}
	family := model.FamilyOf(wanted)
	for _, addr := range addressesOf(held) {
		if model.FamilyOf(addr) == family {
			return Assignment{}, m.taken(held, wanted)
		}
	}
	return Assignment{Missing: []model.Family{family}}, nil
}

// moving reports whether the pod is the target of a migration that has not
// completed: then the machine's active owner would be the pod already.
func (m *Machine) moving(held []ipam.Allocation) bool {
	return m.migrates && !slices.ContainsFunc(held, func(a ipam.Allocation) bool {
		return ipam.IsPod(a.Attributes, m.namespace, m.pod)
	})
}

func (m *Machine) moved(held []ipam.Allocation, addresses []netip.Addr) (Assignment, error) {
	if len(held) == 0 {
		return Assignment{}, cnierr.New(cnierr.TryAgainLater,
			"pod %s/%s is the target of a live migration of the %s, which has no address under handle %s: check that its present pod is connected by this network, and migrate again",
			m.namespace, m.pod, m, m.HandleID)
	}
	return Assignment{Reused: addresses, Alternate: true}, nil
}

func (m *Machine) taken(held []ipam.Allocation, wanted netip.Addr) error {
	return cnierr.New(cnierr.AddressTaken,
		"pod %s/%s asks for %s, but the %s has %v under handle %s and keeps it: ask for that address, or delete the machine",
		m.namespace, m.pod, wanted, m, addressesOf(held), m.HandleID)
}

// addressesOf lists IPv4 first.
func addressesOf(held []ipam.Allocation) []netip.Addr {
	addresses := make([]netip.Addr, len(held))
	for i, allocation := range held {
		addresses[i] = allocation.Addr
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}
