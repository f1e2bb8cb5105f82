package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/nodename"
	"calico-cni/pkg/workload"
)

// collection is one GC.
type collection struct {
	*serving
	valid []types.GCAttachment
	// failures are reported together when everything else is done.
	failures []error
}

// GC removes what attachments left behind that the runtime does not know any
// more: record, interface, addresses (Linux data plane contract 9.3). It goes
// on after an error.
func (p *Plugin) GC(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	s.WarnPlaceholders()
	if err := nodename.Certain(s.Conf); err != nil {
		return err
	}
	if err := s.identify(); err != nil {
		return err
	}
	valid, present, err := s.Conf.ValidAttachments()
	if err != nil {
		return err
	}
	if s.Conf.DisableGC {
		return nil
	}
	if err := s.findIPAM(); err != nil {
		return err
	}
	c := &collection{serving: s, valid: valid}
	return connect.Explain(c.run(ctx, present))
}

func (c *collection) run(ctx context.Context, present bool) error {
	if c.ipam.inProcess() && present {
		if err := c.Lock(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Conf.Timeout())
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		return err
	}
	if present {
		if err := c.ready(ctx); err != nil {
			return err
		}
		c.collect(ctx)
	}
	call := *c.Call
	var err error
	if call.Stdin, err = c.ipamDocument(); err == nil {
		_, err = c.callIPAM(ctx, &call, c.Store)
	}
	if err != nil && !c.ipam.inProcess() && unknownVerb(err) {
		c.Log.Warn("the IPAM plugin does not know GC: its addresses are not looked at", "error", err)
		err = nil
	}
	c.note(err)
	if present {
		c.note(c.disableHost(ctx))
	}
	return c.outcome()
}

func (c *collection) note(err error) {
	if err != nil {
		c.failures = append(c.failures, err)
	}
}

// outcome is one error as it is, several as one without code of its own.
func (c *collection) outcome() error {
	switch len(c.failures) {
	case 0:
		return nil
	case 1:
		return c.failures[0]
	}
	return cnierr.New(cnierr.Unclassified, "GC of network %s failed in part; everything else was done: %w", c.Conf.Name, errors.Join(c.failures...))
}

// collect removes records and interfaces. The addresses are the IPAM plugin's.
func (c *collection) collect(ctx context.Context) {
	owned, err := c.dataplane.Owned(ctx)
	c.note(err)
	for _, id := range c.staleWorkloads(ctx, owned) {
		c.note(c.deleteRecord(ctx, id))
	}
	for _, found := range owned {
		if !found.Owner.InNetwork(c.Conf.Name) || c.isValid(found.Owner) {
			continue
		}
		if err := c.dataplane.Remove(ctx, found); err != nil {
			c.note(fmt.Errorf("removing interface %s of %s: %w", found.HostInterface, found.Owner, err))
			continue
		}
		c.Log.Info("removed the interface of an attachment that is gone", "host_interface", found.HostInterface, "owner", found.Owner.String())
	}
}

func (c *collection) isValid(owner workload.Owner) bool {
	return slices.ContainsFunc(c.valid, func(v types.GCAttachment) bool {
		return owner.Is(workload.Attachment{Network: c.Conf.Name, ContainerID: v.ContainerID, IfName: v.IfName})
	})
}

func (c *collection) validContainer(containerID string) bool {
	return slices.ContainsFunc(c.valid, func(v types.GCAttachment) bool { return v.ContainerID == containerID })
}

// staleWorkloads are the workloads whose record may be stale: those that hold
// stale addresses, and those that an interface names.
func (c *collection) staleWorkloads(ctx context.Context, owned []dataplane.Found) []workload.Identity {
	var stale []workload.Identity
	add := func(containerID, namespace, pod string) {
		id := workload.NewIdentity(c.ID.Node, workload.Attachment{Network: c.Conf.Name, ContainerID: containerID},
			workload.Args{PodName: pod, PodNamespace: namespace}, c.Conf.LabelNamespace())
		if !c.validContainer(containerID) && !slices.Contains(stale, id) {
			stale = append(stale, id)
		}
	}
	if c.Conf.IPAM.Type == netconf.IPAMCalico {
		c.note(c.staleHolders(ctx, add))
	}
	for _, found := range owned {
		if found.Owner.InNetwork(c.Conf.Name) {
			add(found.Owner.ContainerID(), "", "")
		}
	}
	c.note(c.recordedContainers(ctx, add))
	return stale
}

// recordedContainers finds the containers outside Kubernetes whose records name
// this network alone. There DEL frees the addresses first (network plugin
// contract 6.5), so if it was killed then and the namespace is gone, nothing
// but the record itself tells of the container.
func (c *collection) recordedContainers(ctx context.Context, add func(containerID, namespace, pod string)) error {
	if !c.Store.Transactional() {
		// The Kubernetes datastore has no records of other orchestrators.
		return nil
	}
	id := workload.NewIdentity(c.ID.Node, workload.Attachment{}, workload.Args{}, c.Conf.LabelNamespace())
	prefix, err := id.EndpointPrefix()
	if err != nil {
		return err
	}
	answers, err := c.Store.Read(ctx, datastore.ListResources{
		Kind: model.KindWorkloadEndpoint, Namespace: id.Namespace, NamePrefix: prefix,
	})
	if err != nil {
		return err
	}
	for _, entry := range answers[0].Entries {
		endpoint, ok := entry.Value.(*model.WorkloadEndpoint)
		if !ok || !slices.Equal(endpoint.Spec.Profiles, []string{c.Conf.Name}) {
			continue
		}
		node, orchestrator, container, _, err := workload.SplitEndpointName(endpoint.Metadata.Name)
		if err == nil && node == id.Node && orchestrator == id.Orchestrator && container == endpoint.Spec.ContainerID {
			add(container, "", "")
		}
	}
	return nil
}

// staleHolders finds the containers that hold addresses, with their pods.
func (c *collection) staleHolders(ctx context.Context, add func(containerID, namespace, pod string)) error {
	notes, err := ipamplugin.Notes(c.plugin.NotesDirectory, c.Conf.Name)
	if err != nil {
		c.Log.Warn("the attachment notes cannot be read", "error", err)
	}
	allocator := ipam.New(c.Store, ipam.Options{Now: c.Now, Logger: c.Log})
	ids, err := allocator.StaleHandles(ctx, ipamplugin.Stale(c.Conf.Name, c.ID.Node, c.valid, notes, c.Now()))
	if err != nil {
		return err
	}
	for _, id := range ids {
		containerID := strings.TrimPrefix(id, c.Conf.Name+".")
		add(containerID, "", "")
		held, err := allocator.AllocationsByHandle(ctx, id)
		if err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
		for _, allocation := range held {
			add(containerID, allocation.Attributes["namespace"], allocation.Attributes["pod"])
		}
	}
	return nil
}

// deleteRecord deletes the records of a workload that name its container. Once
// its addresses are free nothing leads to them any more, so a write that lost a
// race, with a kubelet that reports on the pod say, is decided anew.
func (c *collection) deleteRecord(ctx context.Context, id workload.Identity) error {
	prefix, err := id.EndpointPrefix()
	if err != nil {
		// No record can have such a name.
		return nil
	}
	query := datastore.ListResources{Kind: model.KindWorkloadEndpoint, Namespace: id.Namespace, NamePrefix: prefix}
	var failure error
	for range recordTries {
		answers, err := c.Store.Read(ctx, query)
		if err != nil {
			return errors.Join(failure, err)
		}
		failure = c.deleteRecords(ctx, answers[0].Entries, id)
		lost := errors.Is(failure, datastore.ErrConflict) || datastore.ReasonOf(failure) == datastore.OutcomeUnknown
		if !lost {
			return failure
		}
	}
	return cnierr.New(cnierr.TryAgainLater, "deleting the endpoint record of container %s, tried %d times: %w; another writer keeps changing it",
		id.Attachment.ContainerID, recordTries, failure)
}

func (c *collection) deleteRecords(ctx context.Context, entries []datastore.Entry, id workload.Identity) error {
	for _, entry := range entries {
		endpoint, ok := entry.Value.(*model.WorkloadEndpoint)
		if !ok || !id.SameWorkload(endpoint.Metadata.Name) || endpoint.Spec.ContainerID != id.Attachment.ContainerID {
			continue
		}
		_, err := c.Store.Write(ctx, datastore.Step{datastore.Remove(entry.Key, entry.Revision)})
		if err != nil && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
	}
	return nil
}
