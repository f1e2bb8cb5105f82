package ipamplugin

import (
	"context"
	"time"

	"github.com/containernetworking/cni/pkg/types"

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
	return s.collect(ctx, Stale(s.conf.Name, s.id.Node, valid, s.notes(), s.Now()))
}

// Stale asks the allocator for what containers of a network hold on a node
// that are not among the valid attachments.
func Stale(network, node string, valid []types.GCAttachment, notes []string, now time.Time) ipam.GCRequest {
	containers := make(map[string]bool, len(valid))
	for _, attachment := range valid {
		containers[attachment.ContainerID] = true
	}
	return ipam.GCRequest{Network: network, Host: node, ValidContainers: containers, Before: now, NoteIDs: notes}
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
	released, err := s.allocator().ReleaseStale(ctx, request)
	for _, id := range released {
		s.log.Info("released the addresses of a container that is gone", "handle", id)
		s.removeNote(id)
	}
	if err != nil {
		return cnierr.Wrap(cnierr.Unclassified, connect.Explain(err), "releasing addresses of containers that are gone")
	}
	return nil
}
