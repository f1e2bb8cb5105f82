package ipamplugin

import (
	"context"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/nodename"
)

// GC releases what containers of this network hold on this node that the
// runtime does not know any more ("where we go beyond the reference" 1).
func (p *Plugin) GC(ctx context.Context, call *invocation.Call) error {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.end()
	s.warnPlaceholders()
	if err := nodename.Certain(s.conf); err != nil {
		return err
	}
	valid, present, err := s.conf.ValidAttachments()
	if err != nil || !present || s.conf.DisableGC {
		return err
	}
	containers := make(map[string]bool, len(valid))
	for _, attachment := range valid {
		containers[attachment.ContainerID] = true
	}
	request := ipam.GCRequest{
		Network: s.conf.Name, Host: s.id.Node, ValidContainers: containers, Before: s.Now(), NoteIDs: s.notes(),
	}
	return s.collect(ctx, request)
}

func (s *session) collect(ctx context.Context, request ipam.GCRequest) error {
	if s.Shared == nil || !s.Shared.Locked {
		lock, err := Lock(ctx, s.conf)
		if err != nil {
			return lockFailed(err)
		}
		defer lock.Release()
	}
	ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout())
	defer cancel()
	if err := s.open(ctx); err != nil {
		return err
	}
	collected, err := s.allocator().ReleaseStale(ctx, request)
	for _, id := range collected.Handles {
		s.log.Info("released the addresses of a container that is gone", "handle", id)
		s.removeNote(id)
	}
	if err != nil {
		return cnierr.Wrap(cnierr.Unclassified, connect.Explain(err), "releasing addresses of containers that are gone")
	}
	return nil
}
