//go:build windows

package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/windows/hns"
)

// state is what of a node a trial must not change.
type state struct {
	// things are its networks, endpoints, namespaces, addresses and routes.
	things map[string]bool
	// ours are the networks of a trial.
	ours []string
}

func (t *trial) look(ctx context.Context) (state, error) {
	s := state{things: map[string]bool{}}
	networks, err := t.service.Networks(ctx)
	if err != nil {
		return s, err
	}
	for _, network := range networks {
		s.things["network "+network.Name] = true
		if isTrials(network.Name) {
			s.ours = append(s.ours, network.Name)
		}
	}
	endpoints, err := t.service.Endpoints(ctx)
	if err != nil {
		return s, err
	}
	for _, endpoint := range endpoints {
		s.things["endpoint "+endpoint.Name+" "+strings.ToLower(endpoint.ID)] = true
	}
	namespaces, err := t.service.Namespaces(ctx)
	if err != nil {
		return s, err
	}
	for _, namespace := range namespaces {
		s.things["namespace "+strings.ToLower(namespace.ID)] = true
	}
	return s, t.lookAtHost(s.things)
}

// lookAtHost adds addresses, and the routes that making a network may remove.
func (t *trial) lookAtHost(things map[string]bool) error {
	interfaces, err := t.host.Interfaces()
	if err != nil {
		return err
	}
	for _, nic := range interfaces {
		for _, address := range nic.Addresses {
			things["address "+address.String()] = true
		}
	}
	routes, err := t.host.Routes()
	for _, route := range routes {
		if isMetadata(route) {
			things["route "+route.Destination.String()+" via "+route.Gateway.String()] = true
		}
	}
	return err
}

func isMetadata(route hns.HostRoute) bool {
	return netip.MustParsePrefix("169.254.169.0/24").Contains(route.Destination.Addr())
}

// compare reports what is different from before the trial.
func (t *trial) compare(ctx context.Context) error {
	now, err := t.look(ctx)
	if err != nil {
		return err
	}
	var differences []string
	for _, thing := range slices.Sorted(maps.Keys(t.before.things)) {
		if !now.things[thing] {
			differences = append(differences, thing+" is missing")
		}
	}
	for _, thing := range slices.Sorted(maps.Keys(now.things)) {
		if !t.before.things[thing] {
			differences = append(differences, thing+" is new")
		}
	}
	if len(differences) > 0 {
		return fmt.Errorf("%s", strings.Join(differences, "; "))
	}
	return nil
}
