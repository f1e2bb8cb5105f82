package plugin

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

// What ADD does differently on Windows: a container has one interface with one
// IPv4 address, whose subnet and pool decide about the host's networks.

func (s *serving) windows() bool { return s.GOOS == "windows" }

// possible refuses what ADD can never do, before anything is taken.
func (a *addition) possible() error {
	if err := a.dataplane.Possible(); err != nil {
		return err
	}
	if a.windows() && a.Conf.IPAM.Type == netconf.IPAMCalico && a.Conf.IPAM.AssignsIPv6() {
		return errIPv6("network configuration key ipam.assign_ipv6 is \"true\"")
	}
	return nil
}

func errIPv6(why string) error {
	return cnierr.New(cnierr.NotOnWindows, "%s: a pod on Windows has one address, of IPv4; let IPv4 alone be assigned", why)
}

// wishesPossible refuses what namespace and pod wish for and cannot have.
func (a *addition) wishesPossible() error {
	if !a.windows() {
		return nil
	}
	if slices.Contains(a.wishes.Families, model.IPv6) {
		return errIPv6("annotation cni.projectcalico.org/ipFamilies asks for IPv6")
	}
	for _, address := range slices.Concat(a.wishes.Addresses, a.wishes.AddressesWithoutIPAM) {
		if !address.Is4() {
			return errIPv6("the pod's annotations ask for " + address.String())
		}
	}
	return nil
}

// ofOtherInterface reports whether the record is that of this very container,
// made for an interface of another name. On Windows it is the only one.
func (s *serving) ofOtherInterface(record *model.WorkloadEndpoint) bool {
	return s.windows() && record != nil && record.Spec.ContainerID == s.Call.ContainerID &&
		record.Spec.Endpoint != "" && record.Spec.Endpoint != s.Call.IfName
}

// onlyInterface refuses a second interface of a container.
func (a *addition) onlyInterface() error {
	if !a.ofOtherInterface(a.view.record) {
		return nil
	}
	return cnierr.New(cnierr.NotOnWindows,
		"container %s has interface %s already: on Windows a pod is on one network; remove the second network from the pod, interface %s",
		a.Call.ContainerID, a.view.record.Spec.Endpoint, a.Call.IfName)
}

// hasOther reports whether this container has another interface in this network
// on the host for which which is true. On Windows it has none.
func (s *serving) hasOther(ctx context.Context, which func(dataplane.Found) bool) (bool, error) {
	if s.windows() {
		return false, nil
	}
	return s.hasInterface(ctx, func(found dataplane.Found) bool { return !found.Owner.Is(s.ID.Attachment) && which(found) })
}

// windowsQueries are what ADD asks for in its first batch.
func (s *serving) windowsQueries() []datastore.Query {
	if !s.windows() {
		return nil
	}
	queries := []datastore.Query{datastore.ListResources{Kind: model.KindIPPool}}
	if s.publishesTunnel() {
		queries = append(queries, datastore.Get{Key: s.nodeKey()})
	}
	return queries
}

// learnWindows takes the answers to windowsQueries. Pools whose range cannot be
// read are left out.
func (a *addition) learnWindows(answers []datastore.Answer) {
	if len(answers) == 0 {
		return
	}
	for _, entry := range answers[0].Entries {
		pool, ok := entry.Value.(*model.IPPool)
		if !ok {
			continue
		}
		cidr, err := pool.CIDR()
		if err != nil {
			a.Log.Warn("a pool is left out of the NAT exceptions", "error", err)
			continue
		}
		a.pools = append(a.pools, dataplane.Pool{
			Name: pool.Metadata.Name, CIDR: cidr, NATOutgoing: pool.NATOutgoing, IPIPMode: pool.IPIPMode, VXLANMode: pool.VXLANMode,
		})
		a.blockBits = append(a.blockBits, pool.BlockSize)
	}
	if len(answers) > 1 {
		a.node = answers[1]
	}
}

// inSubnets gives addresses that came as /32 the prefix length of their block,
// if it is this node's: it tells the subnet of the node's network (Windows data
// plane contract 1).
func (a *addition) inSubnets(ctx context.Context, assigned *types100.Result) error {
	if !a.windows() {
		return nil
	}
	for _, ip := range assigned.IPs {
		address, ok := netip.AddrFromSlice(ip.Address.IP)
		ones, bits := ip.Address.Mask.Size()
		if !ok || ones != bits {
			continue
		}
		block, err := a.ownBlock(ctx, address.Unmap())
		if err != nil {
			return err
		}
		if block.IsValid() {
			ip.Address.Mask = net.CIDRMask(block.Bits(), block.Addr().BitLen())
		}
	}
	return nil
}

// ownBlock is the block of this node that holds an address.
func (a *addition) ownBlock(ctx context.Context, address netip.Addr) (netip.Prefix, error) {
	at := slices.IndexFunc(a.pools, func(p dataplane.Pool) bool { return p.CIDR.Contains(address) })
	if at < 0 {
		return netip.Prefix{}, nil
	}
	cidr := netip.PrefixFrom(address, a.blockBits[at]).Masked()
	answers, err := a.Store.Read(ctx, datastore.Get{Key: model.BlockKey{CIDR: cidr}})
	if err != nil {
		return netip.Prefix{}, err
	}
	if block, _ := datastore.One[model.Block](answers[0]); block == nil || block.Affinity != model.AffinityHost+":"+a.ID.Node {
		return netip.Prefix{}, nil
	}
	return cidr, nil
}

// prefixesOf are the addresses of a result with their prefix lengths.
func prefixesOf(result *types100.Result) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, ip := range result.IPs {
		ones, _ := ip.Address.Mask.Size()
		if address, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			prefixes = append(prefixes, netip.PrefixFrom(address.Unmap(), ones))
		}
	}
	return prefixes
}

// podDNS is the resolver configuration of the pod.
func (s *serving) podDNS() dataplane.DNS {
	dns := s.Conf.PodDNS()
	return dataplane.DNS{Servers: dns.Nameservers, Domain: dns.Domain, Search: dns.Search, Options: dns.Options}
}

// asOnWindows gives a result the form of Windows: addresses with the length of
// their subnet, the MAC as HNS writes it, and the DNS that the pod got.
func (a *addition) asOnWindows(result *types100.Result, prefixes []netip.Prefix, mac string) *types100.Result {
	if !a.windows() {
		return result
	}
	for i, prefix := range prefixes {
		if i < len(result.IPs) {
			result.IPs[i].Address.Mask = net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())
		}
	}
	result.Interfaces[podInterface].Mac = strings.ReplaceAll(mac, ":", "-")
	result.DNS = a.Conf.PodDNS()
	return result
}

// hasAllocations reports whether addresses of this node are allocated.
func (s *serving) hasAllocations(ctx context.Context) (bool, error) {
	answers, err := s.Store.Read(ctx, datastore.ListAffinities{Type: model.AffinityHost, Host: s.ID.Node, Family: model.IPv4})
	if err != nil {
		return false, err
	}
	var queries []datastore.Query
	for _, entry := range answers[0].Entries {
		if key, ok := entry.Key.(model.AffinityKey); ok {
			queries = append(queries, datastore.Get{Key: model.BlockKey{CIDR: key.CIDR}})
		}
	}
	if len(queries) == 0 {
		return false, nil
	}
	if answers, err = s.Store.Read(ctx, queries...); err != nil {
		return false, err
	}
	return slices.ContainsFunc(answers, func(answer datastore.Answer) bool {
		block, _ := datastore.One[model.Block](answer)
		return block != nil && !block.Empty()
	}), nil
}
