package plugin

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// recordTries bounds the writes of an endpoint that others keep changing
// (datastore contract 4.10).
const recordTries = 6

// record writes the endpoint of a link that was just made. A link that is gone
// was overtaken by a newer sandbox of the pod, whose record must stay.
func (a *addition) record(ctx context.Context, link dataplane.Link, addresses []netip.Addr) error {
	if link.Second && a.ID.IsKubernetes() {
		a.Log.Warn("the pod's record stays that of its first interface: where a policy agent runs, it drops the traffic of this one",
			"host_interface", link.HostInterface)
		return a.dataplane.Confirm(ctx, link)
	}
	a.recorded = true
	change := func(endpoint *model.WorkloadEndpoint) { a.fill(endpoint, link, addresses) }
	return a.write(ctx, change, func() error { return a.dataplane.Confirm(ctx, link) })
}

// write applies change to the endpoint as it is now, creating it and the
// network's profile if need be. confirm is asked before every try.
func (a *addition) write(ctx context.Context, change func(*model.WorkloadEndpoint), confirm func() error) error {
	var err error
	for range recordTries {
		if err := confirm(); err != nil {
			return err
		}
		var endpoint *model.WorkloadEndpoint
		if endpoint, err = a.changed(change); err != nil {
			return err
		}
		step := datastore.Step{datastore.Put(endpointKey(endpoint), endpoint, a.view.revision)}
		if a.wantsProfile() {
			step = append(step, datastore.Put(a.profileKey(), model.NewProfile(a.Conf.Name, a.ID.IsKubernetes()), datastore.Absent))
		}
		if _, err = a.Store.Write(ctx, step); err == nil {
			return nil
		}
		written, lookErr := a.lookAgain(ctx, err, endpoint)
		if lookErr != nil {
			return lookErr
		}
		if written {
			return nil
		}
	}
	return cnierr.New(cnierr.TryAgainLater, "writing the endpoint record, tried %d times: %w; another writer keeps changing it", recordTries, err)
}

// wantsProfile: a configuration without policy uses a profile of the network's
// name, made once and never changed (network plugin contract 6.4). In a
// Kubernetes datastore profiles are views of other objects and cannot be made.
func (a *addition) wantsProfile() bool {
	return a.Conf.Policy.Type == "" && !a.view.profile && a.Store.Transactional()
}

// changed is the endpoint to write.
func (a *addition) changed(change func(*model.WorkloadEndpoint)) (*model.WorkloadEndpoint, error) {
	endpoint := &model.WorkloadEndpoint{}
	if a.view.record != nil {
		endpoint = a.view.record.Clone()
	} else {
		name, err := a.ID.EndpointName()
		if err != nil {
			return nil, err
		}
		endpoint.Metadata.Name = name
		endpoint.Metadata.Namespace = a.ID.Namespace
		endpoint.Spec.Endpoint = a.Call.IfName
	}
	change(endpoint)
	return endpoint, nil
}

// lookAgain reads after a write that failed for a lost race or with an unknown
// outcome, so that it can be decided anew; any other failure is returned.
// written is true if the record stands as we wanted it.
func (a *addition) lookAgain(ctx context.Context, failure error, wanted *model.WorkloadEndpoint) (written bool, err error) {
	var conflict *datastore.ConflictError
	unknown := errors.Is(failure, datastore.ErrUnavailable) && datastore.ReasonOf(failure) == datastore.OutcomeUnknown
	if !errors.As(failure, &conflict) && !unknown {
		return false, failure
	}
	v, _, err := a.serving.look(ctx, nil)
	if err != nil {
		return false, errors.Join(failure, err)
	}
	a.view = v
	if err := a.samePod(); err != nil {
		return false, err
	}
	found := v.record
	return unknown && found != nil && found.Spec.ContainerID == wanted.Spec.ContainerID &&
		found.Spec.InterfaceName == wanted.Spec.InterfaceName && slices.Equal(found.Spec.IPNetworks, wanted.Spec.IPNetworks) &&
		slices.Equal(found.Spec.Profiles, wanted.Spec.Profiles), nil
}

// fill sets what this attachment determines (network plugin contract 6.2 step
// 5 and 6.3); what others put into the record stays.
func (a *addition) fill(endpoint *model.WorkloadEndpoint, link dataplane.Link, addresses []netip.Addr) {
	spec := &endpoint.Spec
	spec.Orchestrator = a.ID.Orchestrator
	spec.Node = a.ID.Node
	spec.ContainerID = a.Call.ContainerID
	spec.Pod = a.ID.Pod
	spec.InterfaceName = link.HostInterface
	spec.MAC = link.MAC
	spec.Profiles = []string{a.Conf.Name}
	spec.IPNATs = nil
	spec.IPNetworks = nil
	for _, address := range addresses {
		spec.IPNetworks = append(spec.IPNetworks, netip.PrefixFrom(address, address.BitLen()).String())
	}
	labels := map[string]string{}
	if !a.ID.IsKubernetes() {
		labels = a.Conf.Labels()
	}
	labels["projectcalico.org/namespace"] = a.ID.Namespace
	labels["projectcalico.org/orchestrator"] = a.ID.Orchestrator
	endpoint.Metadata.Labels = labels
	if a.pod != nil {
		a.fillFromPod(endpoint)
	}
}
