package windows

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
)

// A difference counts if it is still there after 2 s (Windows data plane
// contract 9.1).
const (
	convergencePause = 200 * time.Millisecond
	convergenceTries = 11
)

// observed is what CHECK found. Everything may be missing.
type observed struct {
	endpoints []hns.Endpoint
	networks  []hns.Network
	// hostEndpoints are those of the name that the pod's network wants.
	hostEndpoints []hns.Endpoint
	namespace     bool
}

// Differences compares the host with what ADD returned, and lists what is still
// different after up to 2 s. It takes no lock and changes nothing.
func (d *Dataplane) Differences(ctx context.Context, want dataplane.Expectation) ([]string, error) {
	var diffs []string
	for try := range convergenceTries {
		if try > 0 {
			if err := d.Pause(ctx, convergencePause); err != nil {
				return nil, refused(err, "waiting for the endpoint of container %s to be as expected", want.Attachment.ContainerID)
			}
		}
		got, err := d.observe(ctx, want)
		if err != nil {
			return nil, err
		}
		if diffs = d.differences(want, got); len(diffs) == 0 {
			break
		}
	}
	return diffs, nil
}

func (d *Dataplane) observe(ctx context.Context, want dataplane.Expectation) (observed, error) {
	var got observed
	name := d.endpointName(want.Attachment.ContainerID)
	var err error
	if got.networks, err = d.ourNetworks(ctx); err != nil {
		return got, err
	}
	if got.endpoints, err = d.Service.EndpointsByName(ctx, name); err != nil {
		return got, refused(err, "looking up HNS endpoint %s", name)
	}
	_, err = d.Service.NamespaceByID(ctx, want.Namespace)
	if err != nil && !hns.IsNotFound(err) {
		return got, refused(err, "looking up HNS namespace %s", want.Namespace)
	}
	got.namespace = err == nil
	if len(got.endpoints) == 0 {
		return got, nil
	}
	if network, ok := networkOf(got.endpoints[0], got.networks); ok {
		if got.hostEndpoints, err = d.Service.EndpointsByName(ctx, hostEndpointName(network.Name)); err != nil {
			return got, refused(err, "looking up HNS endpoint %s", hostEndpointName(network.Name))
		}
	}
	return got, nil
}

func networkOf(endpoint hns.Endpoint, networks []hns.Network) (hns.Network, bool) {
	at := slices.IndexFunc(networks, func(n hns.Network) bool { return hns.SameID(n.ID, endpoint.HostComputeNetwork) })
	if at < 0 {
		return hns.Network{}, false
	}
	return networks[at], true
}

// differences lists everything of Windows data plane contract 9.1 that is not
// so. What is fixed at creation or the policy agent's is not compared.
func (d *Dataplane) differences(want dataplane.Expectation, got observed) []string {
	name := d.endpointName(want.Attachment.ContainerID)
	var diffs []string
	if !got.namespace {
		diffs = append(diffs, fmt.Sprintf("HNS namespace %s does not exist", want.Namespace))
	}
	switch len(got.endpoints) {
	case 0:
		return append(diffs, fmt.Sprintf("HNS endpoint %s is missing", name))
	case 1:
	default:
		diffs = append(diffs, fmt.Sprintf("HNS endpoint %s exists %d times", name, len(got.endpoints)))
	}
	endpoint := got.endpoints[0]
	diffs = append(diffs, endpointDifferences(want, endpoint)...)
	network, ok := networkOf(endpoint, got.networks)
	if !ok {
		return append(diffs, fmt.Sprintf("HNS endpoint %s is on network %s, which is none of configuration %s", name, endpoint.HostComputeNetwork, d.Name))
	}
	return append(diffs, networkDifferences(endpoint, network, got.hostEndpoints)...)
}

func endpointDifferences(want dataplane.Expectation, endpoint hns.Endpoint) []string {
	var diffs []string
	if !hns.SameID(endpoint.HostComputeNamespace, want.Namespace) {
		diffs = append(diffs, fmt.Sprintf("HNS endpoint %s is attached to namespace %q instead of %s",
			endpoint.Name, endpoint.HostComputeNamespace, want.Namespace))
	}
	if address := addressOf(endpoint); !slices.Contains(want.Addresses, address) {
		diffs = append(diffs, fmt.Sprintf("HNS endpoint %s has address %s instead of %v", endpoint.Name, address, want.Addresses))
	}
	if want.MAC != "" && !strings.EqualFold(colons(want.MAC), colons(endpoint.MACAddress)) {
		diffs = append(diffs, fmt.Sprintf("HNS endpoint %s has MAC %s instead of %s", endpoint.Name, endpoint.MACAddress, want.MAC))
	}
	return diffs
}

// networkDifferences compares what hangs on the network. Which kind it is the
// network itself says: the configuration may have changed.
func networkDifferences(endpoint hns.Endpoint, network hns.Network, hostEndpoints []hns.Endpoint) []string {
	at := slices.IndexFunc(prefixesOf(network), func(p netip.Prefix) bool { return p.Contains(addressOf(endpoint)) })
	if at < 0 {
		return []string{fmt.Sprintf("network %s has no subnet that holds %s", network.Name, addressOf(endpoint))}
	}
	in := subnet{prefixesOf(network)[at]}
	overlay := network.Type == hns.Overlay
	var diffs []string
	gateway := in.podGateway(overlay).String()
	if !slices.ContainsFunc(endpoint.Routes, func(r hns.Route) bool { return r.DestinationPrefix == defaultRoute && r.NextHop == gateway }) {
		diffs = append(diffs, fmt.Sprintf("HNS endpoint %s has no default route via %s", endpoint.Name, gateway))
	}
	if management := providerOf(network.Policies); overlay && providerOf(endpoint.Policies) != management {
		diffs = append(diffs, fmt.Sprintf("HNS endpoint %s has ProviderAddress %s, but the host is reached at %s",
			endpoint.Name, providerOf(endpoint.Policies), management))
	}
	if len(hostEndpoints) == 0 {
		return append(diffs, fmt.Sprintf("the host's endpoint %s is missing", hostEndpointName(network.Name)))
	}
	return append(diffs, hostEndpointDifferences(hostEndpoints[0], in, overlay)...)
}

func hostEndpointDifferences(endpoint hns.Endpoint, in subnet, overlay bool) []string {
	var diffs []string
	if address := addressOf(endpoint); address != in.hostEndpoint() {
		diffs = append(diffs, fmt.Sprintf("the host's endpoint %s has address %s instead of %s", endpoint.Name, address, in.hostEndpoint()))
	}
	switch remote := endpoint.Flags&hns.FlagRemote != 0; {
	case overlay && !remote:
		diffs = append(diffs, fmt.Sprintf("the host's endpoint %s is no remote endpoint", endpoint.Name))
	case !overlay && !endpoint.Attached():
		diffs = append(diffs, fmt.Sprintf("the host's endpoint %s is not attached to the host", endpoint.Name))
	}
	return diffs
}

// Serves fails with code 51 if HNS does not answer, or has lost the networks
// while pods have addresses.
func (d *Dataplane) Serves(ctx context.Context, inUse func(context.Context) (bool, error)) error {
	if _, err := d.Service.Version(ctx); err != nil {
		return cnierr.New(cnierr.LimitedConnectivity, "HNS does not answer, so pods may be without network: %w; look at the service \"hns\"", err)
	}
	networks, err := d.ourNetworks(ctx)
	if err != nil {
		return cnierr.New(cnierr.LimitedConnectivity, "HNS does not list its networks: %w; look at the service \"hns\"", err)
	}
	if len(networks) > 0 {
		return nil
	}
	used, err := inUse(ctx)
	if err != nil || !used {
		return err
	}
	return cnierr.New(cnierr.LimitedConnectivity,
		"no network of configuration %s exists while addresses of this node are allocated: its pods are without network; restart them", d.Name)
}
