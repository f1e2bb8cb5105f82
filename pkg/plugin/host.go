package plugin

import (
	"context"
	"net/netip"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Where no node agent runs, this plugin does what pods need of the host:
// forwarding and masquerading ("where we go beyond the reference" 7).

// usageQueries ask for the pools and for all blocks of the embedded datastore,
// which serves one host.
func usageQueries() []datastore.Query {
	return []datastore.Query{
		datastore.ListResources{Kind: model.KindIPPool},
		datastore.ListBlocks{Family: model.IPv4},
		datastore.ListBlocks{Family: model.IPv6},
	}
}

// poolsAnswer is the place of the pools among the answers to usageQueries.
const poolsAnswer = 0

// allocated tells of which families addresses are in use.
func allocated(usage []datastore.Answer) map[model.Family]bool {
	used := map[model.Family]bool{}
	for _, answer := range usage[poolsAnswer+1:] {
		for _, entry := range answer.Entries {
			if block, ok := entry.Value.(*model.Block); ok && !block.Empty() {
				used[model.FamilyOf(block.CIDR.Addr())] = true
			}
		}
	}
	return used
}

// natPools are the pools as masquerading needs them. Those whose range cannot
// be read are left out.
func natPools(answer datastore.Answer) []NATPool {
	var pools []NATPool
	for _, entry := range answer.Entries {
		if pool, ok := entry.Value.(*model.IPPool); ok {
			if cidr, err := pool.CIDR(); err == nil {
				pools = append(pools, NATPool{CIDR: cidr, NATOutgoing: pool.NATOutgoing})
			}
		}
	}
	return pools
}

// enableHost makes the host serve pods with these addresses.
func (s *serving) enableHost(ctx context.Context, addresses []netip.Addr) error {
	if !s.Embedded || s.windows() {
		return nil
	}
	var ipv4, ipv6 bool
	for _, address := range addresses {
		ipv4, ipv6 = ipv4 || address.Is4(), ipv6 || address.Is6()
	}
	if err := s.plugin.Host.EnableForwarding(ctx, ipv4, ipv6); err != nil {
		return err
	}
	answers, err := s.Store.Read(ctx, datastore.ListResources{Kind: model.KindIPPool})
	if err != nil {
		return err
	}
	return s.plugin.Host.EnsureMasquerade(ctx, natPools(answers[0]))
}

// disableHost removes the masquerading after the last address is free and,
// because other IPAM plugins keep their addresses elsewhere, the last other
// interface is gone. The IPAM lock, if held, keeps an ADD from taking an
// address in between; an ADD after it makes the table again.
func (s *serving) disableHost(ctx context.Context) error {
	if !s.Embedded || s.windows() {
		return nil
	}
	usage, err := s.Store.Read(ctx, usageQueries()...)
	if err != nil {
		return err
	}
	if used := allocated(usage); used[model.IPv4] || used[model.IPv6] {
		return nil
	}
	owned, err := s.dataplane.Owned(ctx)
	if err != nil {
		return err
	}
	for _, found := range owned {
		if !found.Owner.Is(s.ID.Attachment) {
			return nil
		}
	}
	return s.plugin.Host.RemoveMasquerade(ctx)
}
