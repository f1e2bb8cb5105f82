package windows

import (
	"context"
	"fmt"
	"slices"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/windows/hns"
)

// ensureHostEndpoint finds or makes the host's endpoint on the network.
func (a *addition) ensureHostEndpoint(ctx context.Context) error {
	name := hostEndpointName(a.network.Name)
	found, err := a.Service.EndpointsByName(ctx, name)
	if err != nil {
		return refused(err, "looking up HNS endpoint %s", name)
	}
	want := hostEndpointDocument(a.network, a.address.subnet, a.at)
	plan := planHostEndpoint(found, want)
	for _, endpoint := range plan.remove {
		a.log.Warn("replacing the host's endpoint", "endpoint", endpoint.Name, "address", addressOf(endpoint))
		if err := a.removeEndpoint(ctx, endpoint); err != nil {
			return err
		}
	}
	endpoint := want
	if plan.reuse != nil {
		endpoint = *plan.reuse
	} else {
		if a.Overlay && !a.at.onHost() {
			return a.errNoInterface()
		}
		if endpoint, err = a.Service.CreateEndpoint(ctx, want); err != nil {
			return refused(err, "creating HNS endpoint %s", describe(want))
		}
	}
	if a.Overlay || endpoint.Attached() {
		return nil
	}
	return a.attachToHost(ctx, endpoint)
}

// HNS is asked again for a while to attach the host's endpoint, and its
// interface is waited for as long.
const (
	attachPause = 500 * time.Millisecond
	attachTries = 10
)

// attachToHost puts the host's endpoint into the namespace of the host's own
// processes.
func (a *addition) attachToHost(ctx context.Context, endpoint hns.Endpoint) error {
	namespace, err := a.hostNamespace(ctx)
	if err != nil {
		return err
	}
	err = a.poll(ctx, attachPause, attachTries, func(ctx context.Context, _ bool) (bool, error) {
		err := a.Service.Attach(ctx, namespace.ID, endpoint.ID)
		if hns.CodeOf(err) == hns.AlreadyAttached {
			err = nil
		}
		return err == nil, err
	})
	return refused(err, "attaching HNS endpoint %s to the host", describe(endpoint))
}

func (a *addition) hostNamespace(ctx context.Context) (hns.Namespace, error) {
	namespaces, err := a.Service.Namespaces(ctx)
	if err != nil {
		return hns.Namespace{}, refused(err, "listing the namespaces of HNS")
	}
	at := slices.IndexFunc(namespaces, func(n hns.Namespace) bool { return n.Type == hns.NamespaceHostDefault })
	if at >= 0 {
		return namespaces[at], nil
	}
	namespace, err := a.Service.CreateNamespace(ctx, hns.Namespace{Type: hns.NamespaceHostDefault, SchemaVersion: hns.Schema2()})
	return namespace, refused(err, "creating the host's namespace of HNS")
}

// enableForwarding makes the host route between the pods and the world.
func (a *addition) enableForwarding(ctx context.Context) error {
	address := a.address.subnet.hostEndpoint()
	var own hns.Interface
	err := a.poll(ctx, attachPause, attachTries, func(context.Context, bool) (found bool, err error) {
		interfaces, err := a.Host.Interfaces()
		own, found = withAddress(interfaces, address)
		return found, err
	})
	if err != nil {
		return refused(err, "listing the interfaces of the host")
	}
	if own.Index == 0 {
		return cnierr.New(cnierr.HNSRefused,
			"no interface of the host has %s, the address of endpoint %s: remove the endpoint, the next ADD makes it again",
			address, hostEndpointName(a.network.Name))
	}
	for _, nic := range []hns.Interface{a.at.nic, own} {
		if err := a.forward(nic); err != nil {
			return refused(err, "enabling IPv4 forwarding on interface %s", describeNIC(nic))
		}
	}
	return nil
}

func (a *addition) forward(nic hns.Interface) error {
	on, err := a.Host.Forwarding(nic.Index)
	if err != nil || on {
		return err
	}
	return a.Host.EnableForwarding(nic.Index)
}

func describeNIC(nic hns.Interface) string { return fmt.Sprintf("%s (index %d)", nic.Name, nic.Index) }
