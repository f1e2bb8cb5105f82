package ipamplugin

import (
	"context"
	"net/netip"
	"slices"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

// complete puts into the request what only the datastore tells: the CIDRs of
// pools that are configured by name, and the labels of the pod's namespace.
// Both come with the request's first batch, which the returned store then holds
// for the allocator.
func (s *serving) complete(ctx context.Context, request *ipam.Request) (datastore.Store, error) {
	own := s.completing()
	store := s.Store
	var answers []datastore.Answer
	if len(own) > 0 {
		var err error
		if answers, store, err = datastore.Prefetch(ctx, s.Store, own, ipam.AssignQueries(*request)); err != nil {
			return nil, err
		}
	}
	if namespaced, ok := s.NamespaceQuery(); ok {
		namespace, _ := datastore.One[model.Namespace](answers[slices.Index(own, namespaced)])
		if namespace == nil {
			return nil, cnierr.New(cnierr.TryAgainLater, "%s does not exist: no address can be chosen for its pod %s; create the pod again", namespaced, s.ID.Pod)
		}
		request.NamespaceLabels = namespace.Metadata.Labels
	}
	pools := poolsIn(own, answers)
	var err error
	if request.Pools4, err = poolCIDRs(s.Conf.IPAM.IPv4Pools, model.IPv4, pools); err != nil {
		return nil, err
	}
	request.Pools6, err = poolCIDRs(s.Conf.IPAM.IPv6Pools, model.IPv6, pools)
	return store, err
}

func allPools() datastore.Query { return datastore.ListResources{Kind: model.KindIPPool} }

// completing is what complete asks for. Only names need the pools' list.
func (s *serving) completing() []datastore.Query {
	var own []datastore.Query
	if s.namesPools() {
		own = append(own, allPools())
	}
	if namespaced, ok := s.NamespaceQuery(); ok {
		own = append(own, namespaced)
	}
	return own
}

// poolsIn are the pools among the answers; none if they were not asked for.
func poolsIn(queries []datastore.Query, answers []datastore.Answer) []*model.IPPool {
	at := slices.Index(queries, allPools())
	if at < 0 {
		return nil
	}
	var pools []*model.IPPool
	for _, entry := range answers[at].Entries {
		if pool, ok := entry.Value.(*model.IPPool); ok {
			pools = append(pools, pool)
		}
	}
	return pools
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
