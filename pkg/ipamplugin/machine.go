package ipamplugin

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/kubevirt"
	"calico-cni/pkg/model"
)

// A virtual machine of KubeVirt keeps its addresses: they hang on a handle of
// its own, and the pods that it runs in come and go as their owners (IPAM
// contract 9). What is decided is in pkg/kubevirt.

// mayRunMachine reports whether the pod has to be looked at. Its name and the
// configuration tell, so that no other pod costs a request.
func (s *serving) mayRunMachine() bool {
	return s.ID.IsKubernetes() && kubevirt.Candidate(s.ID.Pod) && (s.LeadsToCluster() || s.inAPIServer())
}

// inAPIServer reports whether the datastore is the Kubernetes API server. The
// network plugin asks for queries before it shares its store.
func (s *serving) inAPIServer() bool {
	store := s.Store
	if store == nil && s.plugin.Shared != nil {
		store = s.plugin.Shared.Session.Store
	}
	return store != nil && !store.Transactional()
}

func (s *serving) podQuery() datastore.Query {
	return datastore.Get{Key: model.ResourceKey{Kind: model.KindPod, Namespace: s.ID.Namespace, Name: s.ID.Pod}}
}

func (s *serving) instanceQuery(name string) datastore.Query {
	return datastore.Get{Key: model.ResourceKey{Kind: model.KindVirtualMachineInstance, Namespace: s.ID.Namespace, Name: name}}
}

// recognize finds out whether the pod runs a virtual machine. What ADD reads
// for any pod comes with the same batch, and is kept.
func (s *serving) recognize(ctx context.Context) error {
	ofAny, err := s.addQueries()
	if err != nil {
		return err
	}
	answers, store, err := datastore.Prefetch(ctx, s.Store, []datastore.Query{s.podQuery(), datastore.Get{Key: model.IPAMConfigKey{}}}, ofAny)
	if err != nil {
		return err
	}
	s.Store = store
	launch := kubevirt.Launch{Network: s.Conf.Name}
	launch.Pod, _ = datastore.One[model.Pod](answers[0])
	name, ok := kubevirt.InstanceOf(launch.Pod)
	if !ok {
		return nil
	}
	launch.Persistence = s.persistence(ctx, answers[1])
	var handle datastore.Answer
	if !kubevirt.Disabled(launch.Persistence) {
		own := []datastore.Query{s.instanceQuery(name), handleQuery(kubevirt.HandleID(s.Conf.Name, s.ID.Namespace, name))}
		read, err := s.Store.Read(ctx, own...)
		if err != nil {
			return err
		}
		launch.Instance, _ = datastore.One[model.VirtualMachineInstance](read[0])
		handle = read[1]
	}
	if s.machine, err = kubevirt.Recognize(launch); err != nil || s.machine == nil {
		return err
	}
	return s.keep(ctx, answers[1], handle)
}

func handleQuery(id string) datastore.Query { return datastore.Get{Key: model.HandleKey{ID: id}} }

// keep has the store answer what is now asked for the machine instead of the
// container: first what its handle holds, then, if that is not enough, what
// assigning an address needs.
func (s *serving) keep(ctx context.Context, config, handle datastore.Answer) error {
	ofMachine, err := s.addQueries()
	if err != nil {
		return err
	}
	own := handleQuery(s.machine.HandleID)
	shared := slices.DeleteFunc(ofMachine, func(query datastore.Query) bool { return query == own })
	answers, err := s.Store.Read(ctx, shared...)
	if err != nil {
		return err
	}
	s.Store = datastore.Hold(s.Store, append(shared, own), append(answers, handle))
	s.Store = datastore.Hold(s.Store, ipam.ReleaseQueries(s.machine.HandleID), []datastore.Answer{config, handle})
	return nil
}

// persistence is what the cluster's configuration says of machines' addresses.
// Where etcd is the datastore, operators write another object than the
// allocator reads (datastore contract 4.5). One that cannot be read says
// nothing.
func (s *serving) persistence(ctx context.Context, answer datastore.Answer) string {
	if !s.Store.Transactional() {
		if config, _ := datastore.One[model.IPAMConfig](answer); config != nil {
			return config.VMPersistence
		}
		return ""
	}
	key := model.ResourceKey{Kind: model.KindIPAMConfiguration, Name: model.IPAMConfigurationName}
	answers, err := s.Store.Read(ctx, datastore.Get{Key: key})
	if err != nil {
		s.Log.Warn("virtual machines are taken to keep their addresses", "error", err)
		return ""
	}
	if config, _ := datastore.One[model.IPAMConfiguration](answers[0]); config != nil {
		return config.VMPersistence
	}
	return ""
}

// How often, and after which pause, it is looked again at a machine's handle
// that others are changing; and how often at one that counts an address it does
// not hold. Whoever has not written that within a few seconds was killed.
const (
	machineTries  = 100
	danglingTries = 20
	machinePause  = 100 * time.Millisecond
)

// assignMachine gets the pod the addresses of its machine.
func (s *serving) assignMachine(ctx context.Context) (assigned, error) {
	for try := 1; ; try++ {
		got, err := s.tryMachine(ctx, try < danglingTries)
		again := errors.Is(err, ipam.ErrHandleHolds) || errors.Is(err, errDangling)
		if !again {
			return got, err
		}
		if try == machineTries || !pause(ctx, machinePause) {
			return assigned{}, cnierr.New(cnierr.TryAgainLater, "assigning addresses to the %s: %w; others keep changing them", s.machine, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) (done bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errDangling: an address may just be being assigned to the machine.
var errDangling = errors.New("the handle counts an address that it does not hold")

// tryMachine makes the pod an owner of the machine's addresses and takes those
// that it has not got.
func (s *serving) tryMachine(ctx context.Context, patient bool) (assigned, error) {
	certain, _, err := s.Args.Address()
	if err != nil {
		return assigned{}, err
	}
	var plan kubevirt.Assignment
	err = s.allocator().ChangeOwner(ctx, s.machine.HandleID, func(holding ipam.Holding) (ipam.OwnerChange, error) {
		var err error
		if plan, err = s.planMachine(holding, certain); err != nil {
			return ipam.OwnerChange{}, err
		}
		if len(plan.Missing) > 0 && len(holding.Dangling) > 0 && patient {
			return ipam.OwnerChange{}, errDangling
		}
		return ipam.OwnerChange{Addresses: plan.Reused, Alternate: plan.Alternate, Owner: s.attributes()}, nil
	})
	if err != nil {
		return assigned{}, err
	}
	got := assigned{elsewhere: plan.Alternate}
	for _, addr := range plan.Reused {
		got.prefixes = append(got.prefixes, netip.PrefixFrom(addr, addr.BitLen()))
	}
	if len(plan.Reused) > 0 {
		s.Log.Info("the virtual machine keeps its addresses", "handle", s.machine.HandleID, "addresses", plan.Reused, "migration_target", plan.Alternate)
	}
	if len(plan.Missing) > 0 {
		taken, err := s.takeMissing(ctx, plan.Missing, certain)
		if err != nil {
			return assigned{}, err
		}
		got.prefixes = append(got.prefixes, taken...)
		slices.SortStableFunc(got.prefixes, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() })
	}
	return got, nil
}

// planMachine decides on what the machine holds. certain is the address that is
// wanted, if one is.
func (s *serving) planMachine(holding ipam.Holding, certain netip.Addr) (kubevirt.Assignment, error) {
	if len(holding.Unreadable) > 0 {
		return kubevirt.Assignment{}, cnierr.New(cnierr.TryAgainLater, "handle %s of the %s: blocks %v cannot be read, and they may hold its addresses: repair them",
			s.machine.HandleID, s.machine, holding.Unreadable)
	}
	if certain.IsValid() {
		return s.machine.AssignAddress(holding.Allocations, certain)
	}
	return s.machine.Assign(holding.Allocations, s.families())
}

func (s *serving) takeMissing(ctx context.Context, missing []model.Family, certain netip.Addr) ([]netip.Prefix, error) {
	if certain.IsValid() {
		return s.assignPod(ctx)
	}
	return s.assignAny(ctx, missing)
}

// podQueries are what DEL asks for to find the machine: the pod, and the record
// of the sandbox that has it now.
func (s *serving) podQueries() []datastore.Query {
	queries := []datastore.Query{s.podQuery()}
	if prefix, err := s.ID.EndpointPrefix(); err == nil {
		queries = append(queries, datastore.ListResources{Kind: model.KindWorkloadEndpoint, Namespace: s.ID.Namespace, NamePrefix: prefix})
	}
	return queries
}

// leaveMachine takes the pod's name off the addresses of its machine and, if
// the machine's end has come, gives them back. Without the pod nothing leads to
// the machine (IPAM contract 9).
func (s *serving) leaveMachine(ctx context.Context, answers []datastore.Answer) error {
	pod, _ := datastore.One[model.Pod](answers[0])
	name, ok := kubevirt.InstanceOf(pod)
	if !ok || s.replaced(answers[1:]) {
		return nil
	}
	handle := kubevirt.HandleID(s.Conf.Name, s.ID.Namespace, name)
	var ended bool
	read, store, err := datastore.Prefetch(ctx, s.Store, []datastore.Query{s.instanceQuery(name)}, ipam.ReleaseQueries(handle))
	switch {
	case datastore.ReasonOf(err) == datastore.Undefined:
		// KubeVirt was removed from the cluster: DEL must not hang for that.
		s.Log.Warn("it is not known whether the virtual machine still exists: its addresses stay", "handle", handle, "error", err)
		store = s.Store
	case err != nil:
		return err
	default:
		instance, _ := datastore.One[model.VirtualMachineInstance](read[0])
		if ended, err = s.machineEnded(ctx, name, instance); err != nil {
			return err
		}
	}
	released, err := s.allocatorOn(store).Disown(ctx, ipam.Disowning{
		HandleID: handle, Namespace: s.ID.Namespace, Pod: s.ID.Pod, Release: ended,
	})
	if err == nil && released {
		s.Log.Info("released the addresses of a virtual machine that is gone", "handle", handle)
	}
	return err
}

func (s *serving) machineEnded(ctx context.Context, instanceName string, instance *model.VirtualMachineInstance) (bool, error) {
	name, ask := kubevirt.MachineOf(instanceName, instance)
	if !ask {
		return kubevirt.Ended(instance, nil), nil
	}
	key := model.ResourceKey{Kind: model.KindVirtualMachine, Namespace: s.ID.Namespace, Name: name}
	answers, err := s.Store.Read(ctx, datastore.Get{Key: key})
	if err != nil {
		return false, err
	}
	machine, _ := datastore.One[model.VirtualMachine](answers[0])
	return kubevirt.Ended(instance, machine), nil
}

// replaced reports whether a newer sandbox of the same pod has the machine: the
// owner named by its addresses is that one.
func (s *serving) replaced(records []datastore.Answer) bool {
	for _, answer := range records {
		for _, entry := range answer.Entries {
			endpoint, ok := entry.Value.(*model.WorkloadEndpoint)
			if ok && s.ID.SameWorkload(endpoint.Metadata.Name) && endpoint.Spec.ContainerID != "" && endpoint.Spec.ContainerID != s.Call.ContainerID {
				s.Log.Info("a newer sandbox of the pod has the virtual machine's addresses", "container", endpoint.Spec.ContainerID)
				return true
			}
		}
	}
	return false
}
