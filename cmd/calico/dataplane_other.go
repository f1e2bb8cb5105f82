//go:build !linux && !windows

package main

import (
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/plugin"
	"calico-cni/pkg/session"
)

// newDataplane returns none: the plugin then refuses every verb.
func newDataplane(*session.Session) dataplane.Dataplane { return nil }

// newHost returns none either: without a data plane it is never asked.
func newHost() plugin.Host { return nil }
