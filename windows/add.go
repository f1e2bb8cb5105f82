package windows

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
)

// addition is one ADD under the network lock.
type addition struct {
	*Dataplane
	request dataplane.Request
	address address
	vni     uint32
	// networks are ours, network is the pod's, at is where the host is reached.
	networks []hns.Network
	network  hns.Network
	at       management
	// metadata are routes that making a network may remove.
	metadata []hns.HostRoute
}

// Add connects the pod (Windows data plane contract 3). On error no endpoint of
// the container is left; network and host endpoint stay for the next.
func (d *Dataplane) Add(ctx context.Context, request dataplane.Request) (dataplane.Link, error) {
	a, err := d.admit(ctx, request)
	if err != nil {
		return dataplane.Link{}, err
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return dataplane.Link{}, err
	}
	defer unlock()
	return a.run(ctx)
}

// admit refuses what cannot be on Windows, before HNS is touched.
func (d *Dataplane) admit(ctx context.Context, request dataplane.Request) (*addition, error) {
	if err := d.Possible(); err != nil {
		return nil, err
	}
	if err := d.Validate(request.Namespace); err != nil {
		return nil, err
	}
	given, err := oneIPv4(request.Prefixes)
	if err != nil {
		return nil, err
	}
	if pool, ok := poolOf(given.Addr(), request.Pools); ok {
		warning, err := d.refusedPool(given.Addr(), pool)
		if err != nil {
			return nil, err
		}
		if warning != "" {
			d.log.Warn(warning)
		}
	}
	if given.IsSingleIP() {
		if given, err = d.withinNetwork(ctx, given.Addr()); err != nil {
			return nil, err
		}
	}
	a := &addition{Dataplane: d, request: request}
	if a.address, err = plan(given); err != nil {
		return nil, err
	}
	if d.Overlay {
		a.vni, err = d.vni()
	}
	return a, err
}

// withinNetwork gives an address without subnet the one of a network of ours
// that holds it: a network for a single address would be none.
func (d *Dataplane) withinNetwork(ctx context.Context, pod netip.Addr) (netip.Prefix, error) {
	found, err := d.Service.Networks(ctx)
	if err != nil {
		return netip.Prefix{}, refused(err, "listing the networks of HNS")
	}
	for _, network := range found {
		for _, prefix := range prefixesOf(network) {
			if d.isOurs(network.Name) && prefix.Contains(pod) {
				return netip.PrefixFrom(pod, prefix.Bits()), nil
			}
		}
	}
	return netip.Prefix{}, cnierr.New(cnierr.NotOnWindows,
		"address %s came as /32 and lies in no network of this node, so its subnet is unknown: let calico-ipam assign it from a block of the node", pod)
}

func (a *addition) run(ctx context.Context) (dataplane.Link, error) {
	if err := a.prepareNetwork(ctx); err != nil {
		return dataplane.Link{}, err
	}
	want, err := a.wanted()
	if err != nil {
		return dataplane.Link{}, err
	}
	endpoint, err := a.connect(ctx, want)
	if err != nil {
		return dataplane.Link{}, err
	}
	if endpoint, err = a.finish(ctx, endpoint); err != nil {
		return dataplane.Link{}, err
	}
	return dataplane.Link{
		HostInterface: a.request.HostInterface, ID: endpoint.ID,
		MAC: colons(endpoint.MACAddress), ReportedMAC: endpoint.MACAddress,
		Prefixes: []netip.Prefix{netip.PrefixFrom(a.address.pod, a.address.subnet.prefix.Bits())},
		Tunnels:  a.tunnels(),
	}, nil
}

// prepareNetwork sees to network, host endpoint and, on L2Bridge, forwarding.
func (a *addition) prepareNetwork(ctx context.Context) error {
	// Also if this fails: the next ADD finds a network and no longer knows which
	// routes there were.
	defer a.restoreRoutes()
	created, err := a.ensureNetwork(ctx)
	if err != nil {
		return err
	}
	if a.Overlay {
		if err := a.awaitOverlay(ctx, created); err != nil {
			return err
		}
		a.ensureHostRoute(ctx)
		return a.ensureHostEndpoint(ctx)
	}
	if err := a.ensureHostEndpoint(ctx); err != nil {
		return err
	}
	if err := a.awaitL2Bridge(ctx, created); err != nil {
		return err
	}
	return a.enableForwarding(ctx)
}

// wanted is the endpoint of the pod.
func (a *addition) wanted() (hns.Endpoint, error) {
	var host netip.Prefix
	n := natOf(a.address.pod, a.request.Pools, host)
	if n.outgoing && !a.DisableHostSubnetNATExclusion {
		// Looked for only when needed: without it nothing is missing.
		if !a.at.onHost() {
			return hns.Endpoint{}, a.errNoInterface()
		}
		n = natOf(a.address.pod, a.request.Pools, a.at.subnet())
	}
	policies, err := a.endpointPolicies(a.address.pod, a.at.address, n)
	if err != nil {
		return hns.Endpoint{}, err
	}
	return a.endpointDocument(a.request.Attachment.ContainerID, a.network, a.address, a.request.DNS, policies), nil
}

// A pod's endpoint is tried again after what is in its way was removed.
const (
	connectPause = time.Second
	connectTries = 4
)

// connect makes the endpoint and attaches it to the pod's namespace (Windows
// data plane contract 6.3).
func (a *addition) connect(ctx context.Context, want hns.Endpoint) (hns.Endpoint, error) {
	for try := 1; ; try++ {
		endpoint, err := a.connectOnce(ctx, want)
		if err == nil {
			return endpoint, nil
		}
		a.clearAway(ctx, want)
		if try == connectTries || cnierr.CodeOf(err) == cnierr.InvalidEnvironment || ctx.Err() != nil {
			return hns.Endpoint{}, err
		}
		a.log.Warn("connecting the pod failed, trying again", "endpoint", want.Name, "try", try, "error", err)
		if pauseErr := a.Pause(ctx, connectPause); pauseErr != nil {
			return hns.Endpoint{}, err
		}
	}
}

func (a *addition) connectOnce(ctx context.Context, want hns.Endpoint) (hns.Endpoint, error) {
	found, err := a.endpointsOfPod(ctx, want.Name)
	if err != nil {
		return hns.Endpoint{}, err
	}
	plan := planPodEndpoint(found, want, a.request.Namespace)
	for _, endpoint := range plan.remove {
		if err := a.removeEndpoint(ctx, endpoint); err != nil {
			return hns.Endpoint{}, err
		}
	}
	if plan.reuse != nil && plan.reuse.Attached() {
		return *plan.reuse, nil
	}
	if plan.reuse != nil {
		return *plan.reuse, a.attach(ctx, *plan.reuse)
	}
	made, err := a.Service.CreateEndpoint(ctx, want)
	if err != nil {
		return hns.Endpoint{}, refused(err, "creating HNS endpoint %s on network %s", describe(want), a.network.Name)
	}
	if err := a.attach(ctx, made); err != nil {
		if undone := a.removeEndpoint(ctx, made); undone != nil {
			a.log.Warn("the endpoint of a failed ADD stays until DEL", "endpoint", made.Name, "error", undone)
		}
		return hns.Endpoint{}, err
	}
	return made, nil
}

// endpointsOfPod are those of a pod's endpoint name on networks of ours: the
// names of two networks may make the same one of two containers.
func (a *addition) endpointsOfPod(ctx context.Context, name string) ([]hns.Endpoint, error) {
	found, err := a.Service.EndpointsByName(ctx, name)
	if err != nil {
		return nil, refused(err, "looking up HNS endpoint %s", name)
	}
	return slices.DeleteFunc(found, func(e hns.Endpoint) bool { return !isOn(e, a.networks) }), nil
}

func isOn(endpoint hns.Endpoint, networks []hns.Network) bool {
	return slices.ContainsFunc(networks, func(n hns.Network) bool { return hns.SameID(n.ID, endpoint.HostComputeNetwork) })
}

func (a *addition) attach(ctx context.Context, endpoint hns.Endpoint) error {
	err := a.Service.Attach(ctx, a.request.Namespace, endpoint.ID)
	if hns.CodeOf(err) == hns.ElementNotFound {
		return cnierr.New(cnierr.InvalidEnvironment,
			"CNI_NETNS: HNS namespace %s does not exist: the sandbox is gone, the runtime has to make a new one: %w", a.request.Namespace, err)
	}
	return refused(err, "attaching HNS endpoint %s to namespace %s", describe(endpoint), a.request.Namespace)
}

// clearAway removes what may have been in the way of the pod's endpoint: those
// with its address on networks of ours, but for a live pod's, and those of its
// name. Failures are only logged: the first error is what counts.
func (a *addition) clearAway(ctx context.Context, want hns.Endpoint) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	endpoints, err := a.Service.Endpoints(ctx)
	if err != nil {
		a.log.Warn("what is in the pod's way cannot be listed", "error", err)
		return
	}
	namespaces, err := a.Service.Namespaces(ctx)
	if err != nil {
		a.log.Warn("the namespaces of HNS cannot be listed", "error", err)
		return
	}
	for _, endpoint := range endpoints {
		leaked := addressOf(endpoint) == a.address.pod &&
			(!isLive(endpoint, namespaces) || hns.SameID(endpoint.HostComputeNamespace, a.request.Namespace))
		if !isOn(endpoint, a.networks) || !leaked && endpoint.Name != want.Name {
			continue
		}
		a.log.Warn("removing an endpoint in the pod's way", "endpoint", endpoint.Name, "address", addressOf(endpoint))
		if err := a.removeEndpoint(ctx, endpoint); err != nil {
			a.log.Warn("an endpoint stays in the pod's way", "endpoint", endpoint.Name, "error", err)
		}
	}
}

// finish closes the pod until the policy agent opens it, and reads the endpoint
// back: what HNS says counts. On error the endpoint is gone.
func (a *addition) finish(ctx context.Context, endpoint hns.Endpoint) (hns.Endpoint, error) {
	read, err := a.closeAndRead(ctx, endpoint)
	if err == nil {
		return read, nil
	}
	endpoint.HostComputeNamespace = a.request.Namespace
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	if undone := a.removeEndpoint(cleaning, endpoint); undone != nil {
		a.log.Error("the endpoint of a failed ADD stays until DEL", "endpoint", endpoint.Name, "error", undone)
	}
	return hns.Endpoint{}, err
}

func (a *addition) closeAndRead(ctx context.Context, endpoint hns.Endpoint) (hns.Endpoint, error) {
	if !a.DisableDefaultDeny {
		if err := a.Service.UpdateEndpointPolicies(ctx, endpoint.ID, []hns.Policy{defaultDeny()}); err != nil {
			return hns.Endpoint{}, refused(err, "blocking what comes in to HNS endpoint %s until the policy agent has its rules", describe(endpoint))
		}
	}
	read, err := a.Service.EndpointByID(ctx, endpoint.ID)
	if err != nil {
		return hns.Endpoint{}, refused(err, "reading HNS endpoint %s back", describe(endpoint))
	}
	if !hns.SameID(read.HostComputeNamespace, a.request.Namespace) {
		return hns.Endpoint{}, cnierr.New(cnierr.HNSRefused,
			"HNS endpoint %s was attached to namespace %s, but shows %q: something else on this host changes endpoints",
			describe(read), a.request.Namespace, read.HostComputeNamespace)
	}
	return read, nil
}
