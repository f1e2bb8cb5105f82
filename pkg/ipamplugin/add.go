package ipamplugin

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
	"calico-cni/pkg/session"
)

// Add takes addresses for the container (IPAM contract 7.1).
func (p *Plugin) Add(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	if err := s.validate(); err != nil {
		return err
	}
	openCtx, cancel := context.WithTimeout(ctx, s.Conf.Timeout())
	defer cancel()
	if err := s.Connect(openCtx); err != nil {
		return err
	}
	if err := s.prepare(openCtx); err != nil {
		return connect.Explain(err)
	}
	s.writeNote()
	var addresses assigned
	err = s.underLock(ctx, func(ctx context.Context) (err error) {
		addresses, err = s.assign(ctx)
		return err
	})
	s.leaveHint(err)
	if err != nil {
		return connect.Explain(err)
	}
	if err := call.Deliver(addresses.result()); err != nil {
		s.giveBack(ctx, addresses.prefixes)
		return err
	}
	return nil
}

// assigned is what ADD got.
type assigned struct {
	prefixes []netip.Prefix
	// elsewhere: another node has the host routes to them.
	elsewhere bool
}

// AddQueries is what Add reads first, so that the network plugin can read it
// together with what it needs itself. It is empty if the call cannot be
// served; Add then says why.
func (p *Plugin) AddQueries(call *invocation.Call) []datastore.Query {
	s, err := p.begin(call)
	if err != nil {
		return nil
	}
	queries, err := s.addQueries()
	if err != nil {
		return nil
	}
	if s.mayRunMachine() {
		return append(queries, s.podQuery(), datastore.Get{Key: model.IPAMConfigKey{}})
	}
	return queries
}

// prepare is what the network plugin sees to if this one runs in its process.
// It reads the first batch before it is this process's turn: who holds the lock
// makes all others wait, and an API server takes its time to answer a list while
// objects change.
func (s *serving) prepare(ctx context.Context) error {
	if s.plugin.Shared != nil {
		return nil
	}
	if s.LabelsPending() {
		if err := s.underLock(ctx, s.LabelAffinities); err != nil {
			return err
		}
	}
	if s.mayRunMachine() {
		return nil
	}
	queries, err := s.addQueries()
	if err != nil {
		return err
	}
	defer s.Reading(ctx)()
	s.before = RecentClaims(s.Session)
	_, s.Store, err = datastore.Prefetch(ctx, s.Store, nil, queries)
	return err
}

// addQueries is what ADD reads first for a pod like any other.
func (s *serving) addQueries() ([]datastore.Query, error) {
	addr, wanted, err := s.Args.Address()
	if err != nil {
		return nil, err
	}
	if wanted {
		return ipam.AddressQueries(s.addressRequest(addr)), nil
	}
	request, err := s.request()
	if err != nil {
		return nil, err
	}
	return append(s.completing(), ipam.AssignQueries(request)...), nil
}

// validate finds what must keep ADD from touching anything.
func (s *serving) validate() error {
	if err := s.Conf.Validate(); err != nil {
		return err
	}
	_, err := s.ID.EndpointName()
	return err
}

// assign takes the addresses. On error nothing of this call stays taken.
func (s *serving) assign(ctx context.Context) (assigned, error) {
	if s.mayRunMachine() {
		if err := s.recognize(ctx); err != nil {
			return assigned{}, err
		}
	}
	if s.machine != nil {
		return s.assignMachine(ctx)
	}
	prefixes, err := s.assignPod(ctx)
	return assigned{prefixes: prefixes}, err
}

func (s *serving) assignPod(ctx context.Context) ([]netip.Prefix, error) {
	addr, wanted, err := s.Args.Address()
	if err != nil {
		return nil, err
	}
	if wanted {
		taken, err := s.allocator().AssignAddress(ctx, s.addressRequest(addr))
		if err != nil {
			return nil, err
		}
		if !s.windows() {
			taken = netip.PrefixFrom(addr, addr.BitLen())
		}
		return []netip.Prefix{taken}, nil
	}
	return s.assignAny(ctx, s.families())
}

// assignAny takes an address of each of the families.
func (s *serving) assignAny(ctx context.Context, families []model.Family) ([]netip.Prefix, error) {
	request, err := s.request()
	if err != nil {
		return nil, err
	}
	request.Count4, request.Count6 = count(families, model.IPv4), count(families, model.IPv6)
	store, err := s.complete(ctx, &request)
	if err != nil {
		return nil, err
	}
	got, err := s.allocatorOn(store).Assign(ctx, request)
	addresses := slices.Concat(got.IPv4.Addresses, got.IPv6.Addresses)
	if err == nil {
		err = got.Err()
	}
	if err != nil {
		s.giveBack(ctx, addresses)
		return nil, err
	}
	return addresses, nil
}

// giveBack releases addresses that a failed call took, and no others: the
// handle may hold those of an earlier call. A failure is only logged, because
// the runtime's DEL releases the whole handle. A virtual machine's addresses
// stay with it.
func (s *serving) giveBack(ctx context.Context, addresses []netip.Prefix) {
	if len(addresses) == 0 || s.machine != nil {
		return
	}
	ctx, cancel := session.CleanupContext(ctx)
	defer cancel()
	releases := make([]ipam.Release, len(addresses))
	for i, address := range addresses {
		releases[i] = ipam.Release{Addr: address.Addr(), HandleID: s.ID.HandleID()}
	}
	if _, _, err := s.allocator().ReleaseAddresses(ctx, releases); err != nil {
		s.Log.Error("addresses of a failed ADD stay on their handle until DEL", "handle", s.ID.HandleID(), "error", err)
	}
}

// request is what the configuration asks of the allocator.
func (s *serving) request() (ipam.Request, error) {
	request := ipam.Request{
		Host: s.ID.Node, HandleID: s.handleID(), Attributes: s.attributes(), Use: model.UseWorkload,
		RequireStrictAffinity: s.needsStrictAffinity(), OncePerFamily: s.machine != nil,
		Before: s.before,
	}
	request.Count4, request.Count6 = count(s.families(), model.IPv4), count(s.families(), model.IPv6)
	if request.Count4+request.Count6 == 0 {
		return request, cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key ipam: assign_ipv4 is \"false\" and assign_ipv6 is not \"true\", so no address would be assigned: enable one of them")
	}
	if s.windows() {
		request.Reserve = ipam.WindowsReservation()
	}
	if s.Conf.UseSingleNetwork {
		request.MaxBlocks = 1
	}
	return request, nil
}

// families are those that the configuration wants an address of.
func (s *serving) families() []model.Family {
	var families []model.Family
	if s.Conf.IPAM.AssignsIPv4() {
		families = append(families, model.IPv4)
	}
	if s.Conf.IPAM.AssignsIPv6() {
		families = append(families, model.IPv6)
	}
	return families
}

// count is how many addresses of a family are wanted.
func count(families []model.Family, family model.Family) int {
	if slices.Contains(families, family) {
		return 1
	}
	return 0
}

// needsStrictAffinity: on Windows nobody else may take addresses of this node's
// blocks (IPAM contract 8.1). The embedded datastore has but one node.
func (s *serving) needsStrictAffinity() bool { return s.windows() && !s.Embedded }

func (s *serving) addressRequest(addr netip.Addr) ipam.AddressRequest {
	request := ipam.AddressRequest{
		Addr: addr, Host: s.ID.Node, HandleID: s.handleID(), Attributes: s.attributes(),
		Use: model.UseWorkload, RequireStrictAffinity: s.needsStrictAffinity(), OncePerFamily: s.machine != nil,
		Before: s.before,
	}
	if s.windows() {
		request.Reserve = ipam.WindowsReservation()
	}
	if s.Conf.UseSingleNetwork {
		request.MaxBlocks = 1
	}
	return request
}

// attributes is the owner map of the allocation (datastore contract 4.2).
func (s *serving) attributes() map[string]string {
	attributes := map[string]string{"node": s.ID.Node, "timestamp": ipam.FormatTimestamp(s.Now())}
	if s.ID.IsKubernetes() {
		maps.Copy(attributes, map[string]string{"pod": s.ID.Pod, "namespace": s.ID.Namespace})
	}
	if s.machine != nil {
		return s.machine.Owner(attributes)
	}
	return attributes
}

// result lists the addresses and, per address, a route to itself: a network
// plugin takes an empty list as "program no host routes".
func (a assigned) result() *types100.Result {
	out := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for _, address := range a.prefixes {
		ip := net.IPNet{
			IP:   address.Addr().AsSlice(),
			Mask: net.CIDRMask(address.Bits(), address.Addr().BitLen()),
		}
		out.IPs = append(out.IPs, &types100.IPConfig{Address: ip})
		if !a.elsewhere {
			out.Routes = append(out.Routes, &types.Route{Dst: ip})
		}
	}
	return out
}
