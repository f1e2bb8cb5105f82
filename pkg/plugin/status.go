package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/nodename"
	"calico-cni/pkg/session"
)

// Status says whether pods can be networked (code 50 if not) and whether those
// that run are served (code 51 if not), with one datastore request ("where we
// go beyond the reference" 1).
func (p *Plugin) Status(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	if err := s.validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, session.StatusTime)
	defer cancel()
	if err := nodename.Present(s.Conf); err != nil {
		return ipamplugin.NotAvailable(err)
	}
	if err := s.identify(); err != nil {
		return err
	}
	if err := s.findIPAM(); err != nil {
		return cnierr.New(cnierr.NotAvailable, "pods cannot be networked: %w", err)
	}
	return s.status(ctx)
}

func (s *serving) status(ctx context.Context) error {
	if err := s.Connect(ctx); err != nil {
		return ipamplugin.NotAvailable(err)
	}
	call := *s.Call
	own := []datastore.Query{readyQuery()}
	if s.Embedded {
		own = append(own, usageQueries()...)
	}
	answers, store, err := datastore.Prefetch(ctx, s.Store, own, s.ipam.queries(&call))
	if err != nil {
		return ipamplugin.NotAvailable(err)
	}
	if err := ready(answers[0]); err != nil {
		return ipamplugin.NotAvailable(err)
	}
	if err := s.CheckAccess(); err != nil {
		return ipamplugin.NotAvailable(err)
	}
	if call.Stdin, err = s.ipamDocument(); err != nil {
		return err
	}
	if _, err := s.callIPAM(ctx, &call, store); err != nil {
		if s.ipam.inProcess() || !unknownVerb(err) {
			return asStatus(err)
		}
		s.Log.Debug("the IPAM plugin does not know STATUS", "error", err)
	}
	return s.hostStatus(ctx, answers[1:])
}

// asStatus keeps the code of an error object that the IPAM plugin printed,
// unless it is ADD's code for what STATUS has one of its own for. One that
// printed none cannot serve ADD.
func asStatus(err error) error {
	var printed *types.Error
	if errors.As(err, &printed) && cnierr.CodeOf(err) != cnierr.TryAgainLater {
		return err
	}
	return ipamplugin.NotAvailable(err)
}

// hostStatus looks at what running pods need of the host.
func (s *serving) hostStatus(ctx context.Context, usage []datastore.Answer) error {
	if s.windows() {
		return s.dataplane.Serves(ctx, s.hasAllocations)
	}
	ipv4, ipv6 := true, false
	if s.Conf.IPAM.Type == netconf.IPAMCalico {
		ipv4, ipv6 = s.Conf.IPAM.AssignsIPv4(), s.Conf.IPAM.AssignsIPv6()
	}
	if !s.Embedded {
		return s.plugin.Host.Forwarding(ipv4, ipv6)
	}
	used := allocated(usage)
	serves := func() error { return s.hostServes(ctx, ipv4 && used[model.IPv4], ipv6 && used[model.IPv6], usage) }
	return persisting(ctx, serves)
}

// hostServes looks at what ADD switches on where no node agent runs; without
// addresses in use nothing of it is needed.
func (s *serving) hostServes(ctx context.Context, ipv4, ipv6 bool, usage []datastore.Answer) error {
	if err := s.plugin.Host.Forwarding(ipv4, ipv6); err != nil {
		return err
	}
	if !ipv4 && !ipv6 {
		return nil
	}
	present, err := s.plugin.Host.MasqueradePresent(ctx, natPools(usage[poolsAnswer]))
	if err != nil {
		return cnierr.New(cnierr.LimitedConnectivity, "looking for the masquerading of pods: %w", err)
	}
	if !present {
		return cnierr.New(cnierr.LimitedConnectivity,
			"the nftables table that masquerades pods is gone or changed, so they may reach nothing outside this host: any ADD makes it again")
	}
	return nil
}

// A fault of the host counts if it is still there after settleTime: the first
// ADD takes its address before it makes the host ready for it.
const (
	settleTime = time.Second
	settlePoll = 100 * time.Millisecond
)

func persisting(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}
