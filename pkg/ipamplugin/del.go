package ipamplugin

import (
	"context"

	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
)

// Del releases what the container holds under its handle, and under the one
// that Calico before v3 would have used (IPAM contract 7.2).
func (p *Plugin) Del(ctx context.Context, call *invocation.Call) error {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End()
	s.WarnPlaceholders()
	openCtx, cancel := context.WithTimeout(ctx, s.Conf.Timeout())
	defer cancel()
	if err := s.Connect(openCtx); err != nil {
		return err
	}
	err = s.underLock(ctx, func(ctx context.Context) error {
		return s.allocator().ReleaseByHandle(ctx, s.handles()...)
	})
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
	return ipam.ReleaseQueries(s.handles()...)
}

func (s *serving) handles() []string {
	return []string{s.ID.HandleID(), s.ID.LegacyHandleID()}
}
