//go:build !linux

package main

import (
	"log/slog"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/plugin"
)

// newDataplane returns none: the plugin then refuses every verb.
func newDataplane(*invocation.Call, *slog.Logger) dataplane.Dataplane { return nil }

// newHost returns none either: without a data plane it is never asked.
func newHost() plugin.Host { return nil }
