package plugin

import (
	"context"
	"errors"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
)

// deletion is one DEL.
type deletion struct {
	*serving
	ipamCall invocation.Call
	view     view
	// ipamStore holds what the IPAM plugin reads first.
	ipamStore datastore.Store
	// recordKept: the record stays because the pod's first interface does.
	recordKept bool
}

// Del removes what belongs to this container and interface, and nothing else
// (network plugin contract 6.5). It may be repeated.
func (p *Plugin) Del(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	s.WarnPlaceholders()
	if err := s.identify(); err != nil {
		return err
	}
	if err := s.findIPAM(); err != nil {
		return err
	}
	d := &deletion{serving: s, ipamCall: *call}
	if d.ipamCall.Stdin, err = s.ipamDocument(); err != nil {
		return err
	}
	if err := d.run(ctx); err != nil {
		return connect.Explain(err)
	}
	s.Log.Info("disconnected the pod")
	return nil
}

func (d *deletion) run(ctx context.Context) error {
	if err := d.spend(ctx, d.find); err != nil {
		return err
	}
	if d.ofOtherInterface(d.view.record) {
		d.Log.Info("the container is connected under another interface, which stays", "interface", d.view.record.Spec.Endpoint)
		return nil
	}
	if d.ID.IsKubernetes() {
		return d.kubernetes(ctx)
	}
	return d.other(ctx)
}

// find reads what the verb decides on, except for blocks: those are shared by
// the pods of a host, and are read under the lock.
func (d *deletion) find(ctx context.Context) error {
	if err := d.Connect(ctx); err != nil {
		return err
	}
	var err error
	d.view, d.ipamStore, err = d.look(ctx, d.ipam.queries(&d.ipamCall))
	return err
}

// kubernetes deletes in the order endpoint, interface, addresses: an address
// stays allocated as long as anything uses it.
func (d *deletion) kubernetes(ctx context.Context) error {
	var interfaceErr error
	err := d.spend(ctx, func(ctx context.Context) error {
		if err := d.deleteRecord(ctx); err != nil {
			return err
		}
		interfaceErr = d.deleteInterface(ctx)
		return nil
	})
	if err != nil {
		return err
	}
	if interfaceErr != nil && cnierr.CodeOf(interfaceErr) != cnierr.OwnNamespace {
		return interfaceErr
	}
	if err := d.releaseUnderLock(ctx); err != nil {
		return err
	}
	return interfaceErr
}

// other deletes in the order addresses, endpoint, interface, and reports the
// first failure when all is done.
func (d *deletion) other(ctx context.Context) error {
	releaseErr := d.releaseUnderLock(ctx)
	return errors.Join(releaseErr, d.spend(ctx, func(ctx context.Context) error {
		if err := d.deleteRecord(ctx); err != nil {
			return err
		}
		return d.deleteInterface(ctx)
	}))
}

// releaseUnderLock holds the lock for nothing but the addresses: while the
// kernel removes a link, which mostly waits, other pods of the host go on.
func (d *deletion) releaseUnderLock(ctx context.Context) error {
	d.lockIPAM(ctx)
	defer d.Unlock()
	return d.spend(ctx, d.release)
}

func (d *deletion) deleteInterface(ctx context.Context) error {
	return d.dataplane.Delete(ctx, dataplane.Removal{
		Attachment: d.ID.Attachment, Namespace: d.Call.Netns, Record: d.view.asRecord(),
	})
}

// deleteRecord deletes the endpoint if it is this container's and this
// interface's. The revision guards what was decided.
func (d *deletion) deleteRecord(ctx context.Context) error {
	var err error
	for range recordTries {
		mine, ownErr := d.ownsRecord(ctx)
		if ownErr != nil || !mine {
			return ownErr
		}
		remove := datastore.Remove(endpointKey(d.view.record), d.view.revision)
		if _, err = d.Store.Write(ctx, datastore.Step{remove}); err == nil {
			return nil
		}
		unknown := datastore.ReasonOf(err) == datastore.OutcomeUnknown
		if errors.Is(err, datastore.ErrUnavailable) && !unknown {
			return err
		}
		var readErr error
		if d.view.record, d.view.revision, readErr = d.reread(ctx); readErr != nil {
			return errors.Join(err, readErr)
		}
	}
	return cnierr.New(cnierr.TryAgainLater, "deleting the endpoint record, tried %d times: %w; another writer keeps changing it", recordTries, err)
}

// ownsRecord reports whether this DEL must delete the record.
func (d *deletion) ownsRecord(ctx context.Context) (owns bool, err error) {
	record := d.view.record
	if record == nil {
		d.Log.Info("no endpoint record: it was deleted before, or never made")
		return false, nil
	}
	if id := record.Spec.ContainerID; id != "" && id != d.Call.ContainerID {
		d.Log.Info("the endpoint record is a newer sandbox's and stays", "container_of_record", id)
		return false, nil
	}
	if !d.ID.IsKubernetes() {
		return record.Spec.Endpoint == d.Call.IfName, nil
	}
	// The record of the pod's first interface outlives the DEL of a second.
	d.recordKept, err = d.hasOther(ctx, func(found dataplane.Found) bool {
		return found.HostInterface == record.Spec.InterfaceName
	})
	return !d.recordKept, err
}

// release runs the IPAM plugin's DEL, unless another interface of this
// container remains: the addresses of a container hang on one handle, and are
// freed with its last interface.
func (d *deletion) release(ctx context.Context) error {
	other, err := d.hasOther(ctx, func(dataplane.Found) bool { return true })
	if err != nil {
		return err
	}
	if other {
		d.Log.Info("another interface of the container remains: its addresses stay")
		return nil
	}
	if d.recordKept {
		// The first interface went meanwhile, as with its namespace. Once the
		// addresses are free nothing leads to the record any more.
		if d.view.record, d.view.revision, err = d.reread(ctx); err != nil {
			return err
		}
		if err := d.deleteRecord(ctx); err != nil {
			return err
		}
	}
	return d.releaseFrom(ctx, d.ipamCall, d.ipamStore)
}

// deleteIPAM runs the IPAM plugin's DEL on the call's own connection.
func (s *serving) deleteIPAM(ctx context.Context, call invocation.Call) error {
	return s.releaseFrom(ctx, call, s.Store)
}

func (s *serving) releaseFrom(ctx context.Context, call invocation.Call, store datastore.Store) error {
	call, skip, err := s.azureRelease(call)
	if err != nil || skip {
		return err
	}
	if _, err := s.callIPAM(ctx, &call, store); err != nil {
		return err
	}
	if err := s.forgetAzure(); err != nil {
		return err
	}
	return s.disableHost(ctx)
}
