package main

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"

	"calico-cni/linux"
	"calico-cni/linux/masquerade"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/invocation"
)

func newDataplane(call *invocation.Call, log *slog.Logger) dataplane.Dataplane {
	return linux.New(linux.Options{AllowOwnNamespace: call.NetnsOverride, Logger: log})
}

// host implements plugin.Host.
type host struct{}

func (host) Forwarding(ipv4, ipv6 bool) error { return linux.Forwarding(ipv4, ipv6) }

func (host) EnableForwarding(ctx context.Context, ipv4, ipv6 bool) error {
	return masquerade.EnableForwarding(ctx, ipv4, ipv6)
}

func (host) EnsureMasquerade(ctx context.Context, masqueraded, all []netip.Prefix) error {
	pools := make([]masquerade.NATPool, len(all))
	for i, cidr := range all {
		pools[i] = masquerade.NATPool{CIDR: cidr, NATOutgoing: slices.Contains(masqueraded, cidr)}
	}
	return masquerade.EnsureMasquerade(ctx, pools)
}

func (host) MasqueradePresent(ctx context.Context) (bool, error) {
	return masquerade.MasqueradePresent(ctx)
}

func (host) RemoveMasquerade(ctx context.Context) error { return masquerade.RemoveMasquerade(ctx) }
