//go:build windows

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"calico-cni/windows/hns"
)

// tried is one line of the table.
type tried struct {
	name string
	try  func(context.Context, *trial) error
}

// cases are in the order in which they rely on one another. A /29 has room for
// four pods.
func cases() []tried {
	return []tried{
		{"STATUS before the first pod", tryStatus},
		{"IPv6 is refused with code 117", tryIPv6},
		{"ADD: the endpoint is attached, with address and policies", tryAdd},
		{"the routes to a cloud's metadata are there", tryMetadata},
		{"CHECK finds no difference", tryCheck},
		{"ADD repeated, then DEL: one endpoint, then none", tryRepeated},
		{"four ADDs at once: one network, one host endpoint", tryManyAtOnce},
		{"the fifth pod of a /29 is refused with code 103", tryFull},
		{"another windows_use_single_network is refused with code 112", tryFlag},
		{"GC removes what no container needs", tryGC},
		{"DEL, twice", tryDelete},
		{"STATUS after the last pod", tryStatus},
	}
}

func tryStatus(ctx context.Context, t *trial) error {
	_, err := t.succeed(ctx, "STATUS", "trial-0", nil)
	return err
}

func tryIPv6(ctx context.Context, t *trial) error {
	return t.refuse(ctx, "trial-0", map[string]any{"ipam": map[string]any{"type": "calico-ipam", "assign_ipv6": "true"}}, 117)
}

func tryAdd(ctx context.Context, t *trial) error {
	got, err := t.succeed(ctx, "ADD", "trial-0", nil)
	if err != nil {
		return err
	}
	if t.added = got; len(got.IPs) != 1 {
		return fmt.Errorf("the result is %s", got.raw)
	}
	address, err := netip.ParsePrefix(got.IPs[0].Address)
	if err != nil {
		return err
	}
	endpoint, err := t.endpoint(ctx, "trial-0")
	if err != nil {
		return err
	}
	if len(endpoint.IPConfigurations) == 0 || endpoint.IPConfigurations[0].IPAddress != address.Addr().String() || address.Bits() != 29 {
		return fmt.Errorf("the result says %s, the endpoint has %+v", address, endpoint.IPConfigurations)
	}
	if !hns.SameID(endpoint.HostComputeNamespace, t.namespaces["trial-0"]) {
		return fmt.Errorf("the endpoint is in namespace %q instead of %s", endpoint.HostComputeNamespace, t.namespaces["trial-0"])
	}
	for _, kind := range []string{hns.PolicyOutBoundNAT, hns.PolicyACL} {
		if !slices.ContainsFunc(endpoint.Policies, func(p hns.Policy) bool { return strings.EqualFold(p.Type, kind) }) {
			return fmt.Errorf("the endpoint has no policy %s: %+v", kind, endpoint.Policies)
		}
	}
	return nil
}

func tryMetadata(_ context.Context, t *trial) error {
	now := map[string]bool{}
	if err := t.lookAtHost(now); err != nil {
		return err
	}
	for thing := range t.before.things {
		if strings.HasPrefix(thing, "route ") && !now[thing] {
			return fmt.Errorf("%s is gone", thing)
		}
	}
	return nil
}

func tryCheck(ctx context.Context, t *trial) error {
	var previous map[string]any
	if err := json.Unmarshal(t.added.raw, &previous); err != nil {
		return fmt.Errorf("there is no result of ADD: %w", err)
	}
	_, err := t.succeed(ctx, "CHECK", "trial-0", map[string]any{"prevResult": previous})
	return err
}

func tryRepeated(ctx context.Context, t *trial) error {
	got, err := t.succeed(ctx, "ADD", "trial-0", nil)
	if err != nil {
		return err
	}
	endpoint, err := t.endpoint(ctx, "trial-0")
	if err != nil {
		return err
	}
	if len(got.IPs) != 1 || len(endpoint.IPConfigurations) != 1 || !strings.HasPrefix(got.IPs[0].Address, endpoint.IPConfigurations[0].IPAddress+"/") {
		return fmt.Errorf("the result is %s, the endpoint has %+v", got.raw, endpoint.IPConfigurations)
	}
	// This frees the addresses of both ADDs.
	if _, err := t.succeed(ctx, "DEL", "trial-0", nil); err != nil {
		return err
	}
	if _, err := t.endpoint(ctx, "trial-0"); err == nil {
		return fmt.Errorf("endpoint %s is left by DEL", endpoint.Name)
	}
	return nil
}

func tryManyAtOnce(ctx context.Context, t *trial) error {
	failures := make([]error, 4)
	var all sync.WaitGroup
	for i := range failures {
		container := fmt.Sprintf("trial-%d", i)
		if _, err := t.namespace(container); err != nil {
			return err
		}
		all.Go(func() { _, failures[i] = t.succeed(ctx, "ADD", container, nil) })
	}
	all.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	networks, err := t.service.Networks(ctx)
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(networks, func(n hns.Network) bool { return !isTrials(n.Name) })
	hosts, err := t.service.EndpointsByName(ctx, networkName+"_ep")
	if err != nil || len(ours) != 1 || len(hosts) != 1 {
		return fmt.Errorf("%d networks and %d host endpoints, %v", len(ours), len(hosts), err)
	}
	return nil
}

func tryFull(ctx context.Context, t *trial) error { return t.refuse(ctx, "trial-4", nil, 103) }

func tryFlag(ctx context.Context, t *trial) error {
	return t.refuse(ctx, "trial-4", map[string]any{"windows_use_single_network": false}, 112)
}

func tryGC(ctx context.Context, t *trial) error {
	valid := []any{map[string]any{"containerID": "trial-0", "ifname": "eth0"}, map[string]any{"containerID": "trial-1", "ifname": "eth0"}}
	if _, err := t.succeed(ctx, "GC", "trial-0", map[string]any{"cni.dev/valid-attachments": valid}); err != nil {
		return err
	}
	for container, want := range map[string]int{"trial-0": 1, "trial-1": 1, "trial-2": 0, "trial-3": 0} {
		found, err := t.service.EndpointsByName(ctx, endpointName(container))
		if err != nil || len(found) != want {
			return fmt.Errorf("%d endpoints of %s, want %d, %v", len(found), container, want, err)
		}
	}
	return nil
}

func tryDelete(ctx context.Context, t *trial) error {
	for range 2 {
		for i := range 4 {
			if _, err := t.succeed(ctx, "DEL", fmt.Sprintf("trial-%d", i), nil); err != nil {
				return err
			}
		}
	}
	endpoints, err := t.service.Endpoints(ctx)
	for _, endpoint := range endpoints {
		if strings.HasSuffix(endpoint.Name, "_"+networkName) {
			return fmt.Errorf("endpoint %s is left", endpoint.Name)
		}
	}
	return err
}
