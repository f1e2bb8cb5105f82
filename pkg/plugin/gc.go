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
	*session
	valid []types.GCAttachment
	// failures are reported together when everything else is done.
	failures []error
}

// GC removes what attachments left behind that the runtime does not know any
// more: record, interface, addresses (Linux data plane contract 9.3). It goes
// on after an error.
func (p *Plugin) GC(ctx context.Context, call *invocation.Call) error {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.end()
	s.warn()
	s.warnPlaceholders()
	if err := nodename.Certain(s.conf); err != nil {
		return err
	}
	if err := s.identify(); err != nil {
		return err
	}
	valid, present, err := s.conf.ValidAttachments()
	if err != nil {
		return err
	}
	if s.conf.DisableGC {
		return nil
	}
	if err := s.findIPAM(); err != nil {
		return err
	}
	c := &collection{session: s, valid: valid}
	return connect.Explain(c.run(ctx, present))
}

func (c *collection) run(ctx context.Context, present bool) error {
	if c.ipam.inProcess() && present {
		lock, err := ipamplugin.Lock(ctx, c.conf)
		if err != nil {
			return cnierr.New(cnierr.LockNotObtained, "taking the IPAM lock: %w; look for a process that was stopped while it held it", err)
		}
		c.lock = lock
	}
	ctx, cancel := context.WithTimeout(ctx, c.conf.Timeout())
	defer cancel()
	if err := c.open(ctx); err != nil {
		return err
	}
	if present {
		c.collect(ctx)
	}
	call := *c.call
	var err error
	if call.Stdin, err = c.ipamDocument(); err == nil {
		_, err = c.callIPAM(ctx, &call, c.store)
	}
	if err != nil && !c.ipam.inProcess() && unknownVerb(err) {
		c.log.Warn("the IPAM plugin does not know GC: its addresses are not looked at", "error", err)
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
	return cnierr.New(cnierr.Unclassified, "GC of network %s failed in part; everything else was done: %w", c.conf.Name, errors.Join(c.failures...))
}

// collect removes records and interfaces. The addresses are the IPAM plugin's.
func (c *collection) collect(ctx context.Context) {
	owned, err := c.dataplane.Owned(ctx)
	c.note(err)
	for _, id := range c.staleWorkloads(ctx, owned) {
		c.note(c.deleteRecord(ctx, id))
	}
	for _, found := range owned {
		if !found.Owner.InNetwork(c.conf.Name) || c.isValid(found.Owner) {
			continue
		}
		if err := c.dataplane.Remove(ctx, found); err != nil {
			c.note(fmt.Errorf("removing interface %s of %s: %w", found.HostInterface, found.Owner, err))
			continue
		}
		c.log.Info("removed the interface of an attachment that is gone", "interface", found.HostInterface, "owner", found.Owner.String())
	}
}

func (c *collection) isValid(owner workload.Owner) bool {
	return slices.ContainsFunc(c.valid, func(v types.GCAttachment) bool {
		return owner.Is(workload.Attachment{Network: c.conf.Name, ContainerID: v.ContainerID, IfName: v.IfName})
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
		id := workload.NewIdentity(c.id.Node, workload.Attachment{Network: c.conf.Name, ContainerID: containerID},
			workload.Args{PodName: pod, PodNamespace: namespace}, c.conf.LabelNamespace())
		if !c.validContainer(containerID) && !slices.Contains(stale, id) {
			stale = append(stale, id)
		}
	}
	if c.conf.IPAM.Type == netconf.IPAMCalico {
		c.note(c.staleHolders(ctx, add))
	}
	for _, found := range owned {
		if found.Owner.InNetwork(c.conf.Name) {
			add(found.Owner.ContainerID(), "", "")
		}
	}
	return stale
}

// staleHolders finds the containers that hold addresses, with their pods.
func (c *collection) staleHolders(ctx context.Context, add func(containerID, namespace, pod string)) error {
	notes, err := ipamplugin.Notes(c.NotesDirectory, c.conf.Name)
	if err != nil {
		c.log.Warn("the attachment notes cannot be read", "error", err)
	}
	allocator := ipam.New(c.store, ipam.Options{Now: c.Now, Logger: c.log})
	ids, err := allocator.StaleHandles(ctx, ipamplugin.Stale(c.conf.Name, c.id.Node, c.valid, notes, c.Now()))
	if err != nil {
		return err
	}
	for _, id := range ids {
		containerID := strings.TrimPrefix(id, c.conf.Name+".")
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

// deleteRecord deletes the records of a workload that name its container.
func (c *collection) deleteRecord(ctx context.Context, id workload.Identity) error {
	prefix, err := id.EndpointPrefix()
	if err != nil {
		// No record can have such a name.
		return nil
	}
	answers, err := c.store.Read(ctx, datastore.ListResources{
		Kind: model.KindWorkloadEndpoint, Namespace: id.Namespace, NamePrefix: prefix,
	})
	if err != nil {
		return err
	}
	for _, entry := range answers[0].Entries {
		endpoint, ok := entry.Value.(*model.WorkloadEndpoint)
		if !ok || !id.SameWorkload(endpoint.Metadata.Name) || endpoint.Spec.ContainerID != id.Attachment.ContainerID {
			continue
		}
		_, err := c.store.Write(ctx, datastore.Step{datastore.Remove(entry.Key, entry.Revision)})
		// Whoever changed it meanwhile made it another sandbox's.
		if err != nil && !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
	}
	return nil
}
