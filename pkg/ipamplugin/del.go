package ipamplugin

import (
	"context"
	"strings"

	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
)

// Del releases what the container holds under its handle, and under the one
// that Calico before v3 would have used (IPAM contract 7.2).
func (p *Plugin) Del(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	s.WarnPlaceholders()
	openCtx, cancel := context.WithTimeout(ctx, s.Conf.Timeout())
	defer cancel()
	if err := s.Connect(openCtx); err != nil {
		return err
	}
	err = s.underLock(ctx, s.release)
	if err != nil {
		return connect.Explain(err)
	}
	s.removeNote(s.ID.HandleID())
	return nil
}

// DelQueries is what Del reads first; see AddQueries.
func (p *Plugin) DelQueries(call *invocation.Call) []datastore.Query {
	s, err := p.begin(call)
	if err != nil {
		return nil
	}
	queries := ipam.ReleaseQueries(s.handles()...)
	if s.mayRunMachine() {
		return append(queries, s.podQueries()...)
	}
	return queries
}

// release gives back what is the container's, and takes the pod's name off what
// is a virtual machine's.
func (s *serving) release(ctx context.Context) error {
	if !s.mayRunMachine() {
		return s.allocator().ReleaseByHandle(ctx, s.handles()...)
	}
	answers, store, err := datastore.Prefetch(ctx, s.Store, s.podQueries(), ipam.ReleaseQueries(s.handles()...))
	if err != nil {
		return err
	}
	// The pod may have been connected like any other: while machines did not
	// keep their addresses.
	if err := s.allocatorOn(store).ReleaseByHandle(ctx, s.handles()...); err != nil {
		return err
	}
	return s.leaveMachine(ctx, answers)
}

// handles are what DEL releases. The id of before v3 may spell the same as the
// id of another container today: of this network, if that is called like the
// pod's namespace, or of any network of this host, whose note then tells. DEL
// acts on its own container only ("where we go beyond the reference" 1).
func (s *serving) handles() []string {
	own, legacy := s.ID.HandleID(), s.ID.LegacyHandleID()
	if strings.HasPrefix(legacy, s.Conf.Name+".") || s.noted(legacy) {
		return []string{own}
	}
	return []string{own, legacy}
}
