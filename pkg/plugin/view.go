package plugin

import (
	"context"
	"net/netip"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// view is what ADD and DEL read before they decide.
type view struct {
	// record is the endpoint of this workload, nil if there is none.
	record   *model.WorkloadEndpoint
	revision datastore.Revision
	// profile is true if the network's profile exists.
	profile bool
}

// asRecord is the endpoint as the data plane needs it.
func (v view) asRecord() dataplane.Record { return asRecord(v.record) }

func asRecord(endpoint *model.WorkloadEndpoint) dataplane.Record {
	if endpoint == nil {
		return dataplane.Record{}
	}
	record := dataplane.Record{ContainerID: endpoint.Spec.ContainerID, InterfaceName: endpoint.Spec.InterfaceName}
	for _, text := range endpoint.Spec.IPNetworks {
		if network, err := netip.ParsePrefix(text); err == nil {
			record.Addresses = append(record.Addresses, network.Addr())
		}
	}
	return record
}

// look reads in one batch what the network plugin and an IPAM plugin in this
// process need, and fails with code 11 unless the cluster is ready. The
// returned store holds the IPAM plugin's answers.
func (a *addition) look(ctx context.Context, ipamQueries []datastore.Query) (datastore.Store, error) {
	ofPod, ofWindows := a.podQueries(), a.windowsQueries()
	v, store, answers, err := a.lookWith(ctx, append(ofPod, ofWindows...), ipamQueries)
	if err != nil {
		return nil, err
	}
	a.view = v
	a.learnWindows(answers[len(ofPod):])
	if err := a.learnPod(answers[:len(ofPod)]); err != nil {
		return nil, err
	}
	return store, a.wishesPossible()
}

func (s *serving) look(ctx context.Context, ipamQueries []datastore.Query) (view, datastore.Store, error) {
	v, store, _, err := s.lookWith(ctx, nil, ipamQueries)
	return v, store, err
}

// lookWith is look with further queries, whose answers it returns.
func (s *serving) lookWith(ctx context.Context, further, ipamQueries []datastore.Query) (view, datastore.Store, []datastore.Answer, error) {
	endpoints, err := s.endpointQuery()
	if err != nil {
		return view{}, nil, nil, err
	}
	own := append([]datastore.Query{readyQuery(), endpoints, datastore.Get{Key: s.profileKey()}}, further...)
	answers, store, err := datastore.Prefetch(ctx, s.Store, own, ipamQueries)
	if err != nil {
		return view{}, nil, nil, err
	}
	if err := ready(answers[0]); err != nil {
		return view{}, nil, nil, err
	}
	v := view{profile: len(answers[2].Entries) > 0}
	v.record, v.revision = s.matching(answers[1])
	return v, store, answers[3:], nil
}

func readyQuery() datastore.Query {
	return datastore.Get{Key: model.ResourceKey{Kind: model.KindClusterInformation, Name: model.ClusterInformationName}}
}

// ready fails with code 11 unless the cluster's data may be used. An absent
// object or value means that they may not (datastore contract 4.8).
func ready(answer datastore.Answer) error {
	information, _ := datastore.One[model.ClusterInformation](answer)
	switch {
	case information == nil:
		return cnierr.New(cnierr.TryAgainLater,
			"Calico is currently not ready to process requests: ClusterInformation %s does not exist; check that the cluster's installation has finished", model.ClusterInformationName)
	case information.Ready == nil || !*information.Ready:
		return cnierr.New(cnierr.TryAgainLater,
			"Calico is currently not ready to process requests: ClusterInformation %s does not say datastoreReady; wait until a migration or upgrade has finished", model.ClusterInformationName)
	}
	return nil
}

// ready fails with code 11 unless the cluster's data may be changed now.
func (s *serving) ready(ctx context.Context) error {
	answers, err := s.Store.Read(ctx, readyQuery())
	if err != nil {
		return err
	}
	return ready(answers[0])
}

// endpointQuery lists the endpoints of this workload, whatever their
// interface. Names of other workloads may begin the same.
func (s *serving) endpointQuery() (datastore.Query, error) {
	prefix, err := s.ID.EndpointPrefix()
	if err != nil {
		return nil, err
	}
	return datastore.ListResources{Kind: model.KindWorkloadEndpoint, Namespace: s.ID.Namespace, NamePrefix: prefix}, nil
}

// matching picks the endpoint of this workload from the answer to
// endpointQuery.
func (s *serving) matching(answer datastore.Answer) (*model.WorkloadEndpoint, datastore.Revision) {
	for _, entry := range answer.Entries {
		endpoint, ok := entry.Value.(*model.WorkloadEndpoint)
		if ok && s.ID.SameWorkload(endpoint.Metadata.Name) {
			return endpoint, entry.Revision
		}
	}
	return nil, datastore.Absent
}

// reread reads the record again.
func (s *serving) reread(ctx context.Context) (*model.WorkloadEndpoint, datastore.Revision, error) {
	query, err := s.endpointQuery()
	if err != nil {
		return nil, datastore.Absent, err
	}
	answers, err := s.Store.Read(ctx, query)
	if err != nil {
		return nil, datastore.Absent, err
	}
	endpoint, revision := s.matching(answers[0])
	return endpoint, revision, nil
}

// readRecord implements dataplane.RecordReader.
func (s *serving) readRecord(ctx context.Context) (dataplane.Record, error) {
	endpoint, _, err := s.reread(ctx)
	return asRecord(endpoint), err
}

func (s *serving) profileKey() model.Key {
	return model.ResourceKey{Kind: model.KindProfile, Name: s.Conf.Name}
}

func endpointKey(endpoint *model.WorkloadEndpoint) model.Key {
	return model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: endpoint.Metadata.Namespace, Name: endpoint.Metadata.Name}
}
