package plugin

import (
	"context"
	"net/netip"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/annotation"
	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/nodename"
	"calico-cni/pkg/session"
)

// addition is one ADD.
type addition struct {
	*serving
	mtu    int
	routes []netip.Prefix
	// previous is the result of the plugins before us in the chain, or nil.
	previous *types100.Result
	// ipamCall is the call with the document that the IPAM plugin gets.
	ipamCall invocation.Call
	view     view
	// ipamStore holds what the IPAM plugin reads first.
	ipamStore datastore.Store
	// pod is what policy takes from Kubernetes, nil if it takes nothing, and
	// wishes are what its annotations ask for.
	pod    *model.Pod
	wishes annotation.Wishes
	nats   []model.IPNAT
	// pools with the sizes of their blocks, and the node, are read on Windows.
	pools     []dataplane.Pool
	blockBits []int
	node      datastore.Answer
	// podUID tells the pod that a Kubernetes datastore has the record in.
	podUID string
	// taken is true from the moment the IPAM plugin may hold addresses for
	// this call, made is the link that this call made, and recorded is true
	// from the moment the endpoint record may name that link.
	taken    bool
	made     *dataplane.Link
	recorded bool
	// reused: the record was there before, with the addresses in use.
	reused bool
}

// Add connects a pod (network plugin contract 6.1 to 6.3). On error nothing
// that this call made or took is left, except addresses beside which another
// interface of the same container needs its own.
func (p *Plugin) Add(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	a := &addition{serving: s, ipamCall: *call}
	if err := a.prepare(ctx); err != nil {
		return err
	}
	if err := invocation.Guarded(s.Stderr, func() error { return a.serve(ctx) }); err != nil {
		a.undo(ctx)
		return connect.Explain(err)
	}
	return nil
}

// serve is everything that is undone if it fails or panics. The batch is read
// before the IPAM lock is taken: who holds that makes all others wait, and an
// API server takes its time to answer a list while objects change. What others
// claim meanwhile they note.
func (a *addition) serve(ctx context.Context) error {
	if err := a.spend(ctx, a.Connect); err != nil {
		return err
	}
	if err := a.labelAffinities(ctx); err != nil {
		return err
	}
	if err := a.spend(ctx, a.find); err != nil {
		return err
	}
	a.lockIPAM(ctx)
	return a.spend(ctx, a.finish)
}

// finish carries out what is decided on what find has read, and tells it.
func (a *addition) finish(ctx context.Context) error {
	result, err := a.run(ctx)
	if err != nil {
		return err
	}
	addresses := addressesOf(result)
	a.awaitPolicy(ctx)
	if err := a.Call.Deliver(a.behindPrevious(result)); err != nil {
		return err
	}
	if a.made != nil {
		a.Log.Info("connected the pod", "host_interface", a.made.HostInterface, "addresses", addresses)
	}
	return nil
}

// prepare does what must be done before the IPAM lock: everything that needs
// no datastore, and whatever may wait.
func (a *addition) prepare(ctx context.Context) error {
	if err := a.validate(); err != nil {
		return err
	}
	if err := a.possible(); err != nil {
		return err
	}
	if err := nodename.Await(ctx, a.Conf); err != nil {
		return err
	}
	var err error
	if a.mtu, err = a.resolveMTU(); err != nil {
		return err
	}
	if err := a.identify(); err != nil {
		return err
	}
	if _, err := a.ID.EndpointName(); err != nil {
		return err
	}
	if !a.ID.IsKubernetes() && a.Conf.FeatureControl.IPAddrsNoIPAM {
		return cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key feature_control.ip_addrs_no_ipam: only pods of Kubernetes can bring addresses of their own: remove the key")
	}
	if err := a.dataplane.Validate(a.Call.Netns); err != nil {
		return err
	}
	if err := a.findIPAM(); err != nil {
		return err
	}
	if a.previous, err = a.previousResult(); err != nil {
		return err
	}
	if a.ipamCall.Stdin, err = a.ipamDocument(); err != nil {
		return err
	}
	if a.routes, err = a.podRoutes(); err != nil {
		return err
	}
	return a.awaitGates(ctx)
}

// find reads the batch.
func (a *addition) find(ctx context.Context) error {
	defer a.Reading(ctx)()
	a.claimed = a.ipam.recent()
	var err error
	a.ipamStore, err = a.look(ctx, a.ipam.queries(&a.ipamCall))
	return err
}

// run carries out the plan. Whatever it made or took before an error is
// remembered for undo.
func (a *addition) run(ctx context.Context) (*types100.Result, error) {
	if err := a.onlyInterface(); err != nil {
		return nil, err
	}
	if err := a.insertPodCIDRs(ctx); err != nil {
		return nil, err
	}
	if !a.ID.IsKubernetes() && a.view.record != nil {
		result, done, err := a.reuse(ctx)
		if err != nil || done {
			return result, err
		}
	}
	assigned, err := a.takeAddresses(ctx, a.ipamStore)
	if err != nil {
		return nil, err
	}
	if a.nats, err = a.wishes.NATs(addressesOf(assigned)); err != nil {
		return nil, err
	}
	a.Unlock()
	return a.connect(ctx, assigned)
}

// labelAffinities does what an IPAM plugin in this process needs before its
// first batch, once per boot. A cluster that is not ready is not written to.
func (a *addition) labelAffinities(ctx context.Context) error {
	if !a.ipam.inProcess() || !a.LabelsPending() {
		return nil
	}
	a.lockIPAM(ctx)
	defer a.Unlock()
	if !a.LabelsPending() {
		return nil // another process has seen to it meanwhile
	}
	return a.spend(ctx, func(ctx context.Context) error {
		if err := a.serving.ready(ctx); err != nil {
			return err
		}
		return a.LabelAffinities(ctx)
	})
}

// connect has the data plane connect the pod and records the endpoint.
func (a *addition) connect(ctx context.Context, assigned *types100.Result) (*types100.Result, error) {
	addresses := addressesOf(assigned)
	if err := a.enableHost(ctx, addresses); err != nil {
		return nil, err
	}
	if err := a.inSubnets(ctx, assigned); err != nil {
		return nil, err
	}
	link, err := a.dataplane.Add(ctx, dataplane.Request{
		Attachment: a.ID.Attachment, Kubernetes: a.ID.IsKubernetes(), Namespace: a.Call.Netns,
		HostInterface: a.ID.HostInterface(a.prefix), SecondInterface: a.ID.SecondHostInterface(a.prefix),
		Addresses: addresses, Routes: a.routes,
		MTU: a.mtu, Queues: a.Conf.NumQueues, Device: a.Conf.DeviceType, MAC: a.wishes.MAC,
		AllowIPForwarding: a.Conf.ContainerSettings.AllowIPForwarding,
		SkipHostRoutes:    a.isMigrationTarget(assigned),
		RecordAtStart:     a.view.asRecord(), ReadRecord: a.readRecord,
		Prefixes: prefixesOf(assigned), Pools: a.pools, DNS: a.podDNS(),
	})
	if err != nil {
		return nil, err
	}
	a.made = &link
	a.publishTunnel(ctx, link)
	if err := a.record(ctx, link, addresses); err != nil {
		return nil, err
	}
	return a.result(assigned, link), nil
}

// isMigrationTarget: calico-ipam returns no routes for the target of a virtual
// machine's migration, whose address still belongs to another node (network
// plugin contract 6.2 step 6). A pod that brings its own addresses is none; one
// that wished for some may be: a machine's pods all wish for the same.
func (a *addition) isMigrationTarget(assigned *types100.Result) bool {
	own := len(a.wishes.AddressesWithoutIPAM) > 0
	return a.ID.IsKubernetes() && a.Conf.IPAM.Type == netconf.IPAMCalico && len(assigned.Routes) == 0 && !own
}

// undo takes back what this call made and took. Its failures are logged: the
// first error is what the runtime must hear, and its DEL tries again.
func (a *addition) undo(ctx context.Context) {
	ctx, cancel := session.CleanupContext(ctx)
	defer cancel()
	// The interface goes first, because it needs no datastore.
	if a.made != nil {
		if err := a.dataplane.Undo(ctx, *a.made); err != nil {
			a.Log.Error("the interface of a failed ADD stays until DEL", "host_interface", a.made.HostInterface, "error", err)
		}
	}
	if a.recorded && !a.reused {
		if err := a.forgetRecord(ctx); err != nil {
			a.Log.Error("the endpoint record of a failed ADD stays until DEL", "error", err)
		}
	}
	if a.taken {
		a.releaseTaken(ctx)
	}
}

// forgetRecord deletes the record if this call wrote it, as DEL would.
func (a *addition) forgetRecord(ctx context.Context) error {
	d := deletion{serving: a.serving}
	var err error
	d.view.record, d.view.revision, err = a.reread(ctx)
	if err != nil || d.view.record == nil || d.view.record.Spec.ContainerID != a.Call.ContainerID {
		return err
	}
	return d.deleteRecord(ctx)
}

// releaseTaken runs the IPAM plugin's DEL, unless an interface of this
// container is there: all its addresses hang on one handle, and DEL would free
// the one in use. They then stay until the container's last DEL.
func (a *addition) releaseTaken(ctx context.Context) {
	used, err := a.hasInterface(ctx, func(dataplane.Found) bool { return true })
	if err != nil || used {
		a.Log.Warn("addresses taken by a failed ADD stay on their handle until the container's last DEL",
			"handle", a.ID.HandleID(), "error", err)
		return
	}
	call := a.ipamCall
	call.Verb = invocation.Del
	if err := a.deleteIPAM(ctx, call); err != nil {
		a.Log.Error("addresses of a failed ADD stay until DEL", "handle", a.ID.HandleID(), "error", err)
	}
}

// hasInterface reports whether this container has an interface in this network
// on the host for which which is true.
func (s *serving) hasInterface(ctx context.Context, which func(dataplane.Found) bool) (bool, error) {
	owned, err := s.dataplane.OwnedBy(ctx, s.ID.Attachment)
	return err == nil && slices.ContainsFunc(owned, which), err
}
