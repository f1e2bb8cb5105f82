package ipamplugin

import (
	"context"
	"net/netip"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

// resolvePools puts the configured pools into the request. Only names need the
// pools' list; it comes with the request's first batch, which the returned
// store then holds for the allocator.
func (s *serving) resolvePools(ctx context.Context, request *ipam.Request) (datastore.Store, error) {
	var pools []*model.IPPool
	store := s.Store
	if s.namesPools() {
		answers, holding, err := datastore.Prefetch(ctx, s.Store,
			[]datastore.Query{datastore.ListResources{Kind: model.KindIPPool}}, ipam.AssignQueries(*request))
		if err != nil {
			return nil, err
		}
		store = holding
		for _, entry := range answers[0].Entries {
			if pool, ok := entry.Value.(*model.IPPool); ok {
				pools = append(pools, pool)
			}
		}
	}
	var err error
	if request.Pools4, err = poolCIDRs(s.Conf.IPAM.IPv4Pools, model.IPv4, pools); err != nil {
		return nil, err
	}
	request.Pools6, err = poolCIDRs(s.Conf.IPAM.IPv6Pools, model.IPv6, pools)
	return store, err
}

func (s *serving) namesPools() bool {
	for _, entries := range [][]string{s.Conf.IPAM.IPv4Pools, s.Conf.IPAM.IPv6Pools} {
		for _, entry := range entries {
			if _, err := netip.ParsePrefix(entry); err != nil {
				return true
			}
		}
	}
	return false
}

// poolCIDRs turns pool names and CIDRs into CIDRs (IPAM contract 7.1 step 5).
// Whether such a pool exists and is enabled is for the allocator to say.
func poolCIDRs(entries []string, family model.Family, pools []*model.IPPool) ([]netip.Prefix, error) {
	var cidrs []netip.Prefix
	for _, entry := range entries {
		cidr, err := netip.ParsePrefix(entry)
		if err != nil {
			cidr, err = namedPool(entry, pools)
		}
		if err != nil {
			return nil, err
		}
		if model.FamilyOf(cidr.Addr()) != family {
			return nil, cnierr.New(cnierr.InvalidConfiguration,
				"network configuration key ipam.ipv%d_pools: %q isn't a %s address; remove pool %q from the list", family, cidr.Addr(), family, entry)
		}
		cidrs = append(cidrs, cidr.Masked())
	}
	return cidrs, nil
}

func namedPool(name string, pools []*model.IPPool) (netip.Prefix, error) {
	for _, pool := range pools {
		if pool.Metadata.Name == name {
			return pool.CIDR()
		}
	}
	return netip.Prefix{}, cnierr.New(cnierr.InvalidConfiguration,
		"error parsing pool %q: invalid CIDR address: %s; no pool has this name either: correct the configured pools", name, name)
}
