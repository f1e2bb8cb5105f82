package main

import (
	"context"

	"calico-cni/linux"
	"calico-cni/linux/masquerade"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/plugin"
	"calico-cni/pkg/session"
)

func newDataplane(s *session.Session) dataplane.Dataplane {
	return linux.New(linux.Options{AllowOwnNamespace: s.Call.NetnsOverride, Logger: s.Log})
}

func newHost() plugin.Host { return host{} }

// host implements plugin.Host.
type host struct{}

func (host) Forwarding(ipv4, ipv6 bool) error { return linux.Forwarding(ipv4, ipv6) }

func (host) EnableForwarding(ctx context.Context, ipv4, ipv6 bool) error {
	return masquerade.EnableForwarding(ctx, ipv4, ipv6)
}

func (host) EnsureMasquerade(ctx context.Context, pools []plugin.NATPool) error {
	return masquerade.Ensure(ctx, masqueradePools(pools))
}

func (host) MasqueradePresent(ctx context.Context, pools []plugin.NATPool) (bool, error) {
	return masquerade.Present(ctx, masqueradePools(pools))
}

func (host) RemoveMasquerade(ctx context.Context) error { return masquerade.Remove(ctx) }

func masqueradePools(pools []plugin.NATPool) []masquerade.Pool {
	out := make([]masquerade.Pool, len(pools))
	for i, pool := range pools {
		out[i] = masquerade.Pool(pool)
	}
	return out
}
