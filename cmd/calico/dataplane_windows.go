package main

import (
	"context"
	"encoding/json"
	"strings"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/plugin"
	"calico-cni/pkg/session"
	"calico-cni/windows"
	"calico-cni/windows/node"
)

func newDataplane(s *session.Session) dataplane.Dataplane {
	options := windowsOptions(s.Conf)
	options.Service, options.Host, options.Logger = node.Service{}, node.Host{}, s.Log
	return windows.New(options)
}

// windowsOptions is what the data plane needs of the configuration.
func windowsOptions(conf *netconf.Config) windows.Options {
	return windows.Options{
		Name: conf.Name, Overlay: conf.Mode == "vxlan", VNI: conf.VXLANVNI, MACPrefix: conf.VXLANMACPrefix,
		SingleNetwork:                 conf.UseSingleNetwork,
		DisableHostSubnetNATExclusion: conf.DisableHostSubnetNATExclusion,
		DisableDefaultDeny:            conf.DisableDefaultDenyAllPolicy,
		LoopbackDSR:                   conf.LoopbackDSR,
		Policies:                      endpointPolicies(conf.Policies),
	}
}

// endpointPolicies are the entries of policies that are for endpoints.
func endpointPolicies(policies []netconf.HNSPolicy) []json.RawMessage {
	var values []json.RawMessage
	for _, policy := range policies {
		if strings.EqualFold(policy.Name, "EndpointPolicy") {
			values = append(values, policy.Value)
		}
	}
	return values
}

func newHost() plugin.Host { return host{} }

// host implements plugin.Host: what Linux needs of the host without a node
// agent, the networks of HNS do on Windows.
type host struct{}

func (host) Forwarding(bool, bool) error                              { return nil }
func (host) EnableForwarding(context.Context, bool, bool) error       { return nil }
func (host) EnsureMasquerade(context.Context, []plugin.NATPool) error { return nil }
func (host) MasqueradePresent(context.Context, []plugin.NATPool) (bool, error) {
	return true, nil
}
func (host) RemoveMasquerade(context.Context) error { return nil }
