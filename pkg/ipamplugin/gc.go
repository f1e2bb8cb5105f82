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
	valid, present, err := s.Conf.ValidAttachments()
	if err != nil || !present || s.Conf.DisableGC {
		return err
	}
	return s.collect(ctx, Stale(s.Conf.Name, s.ID.Node, valid, s.notes(), s.Now()))
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

func (s *serving) collect(ctx context.Context, request ipam.GCRequest) error {
	if !s.locked() {
		if err := s.Lock(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Conf.Timeout())
	defer cancel()
	if err := s.Connect(ctx); err != nil {
		return err
	}
	request.Note = s.writeNoteOf
	released, err := s.allocator().ReleaseStale(ctx, request)
	for _, id := range released {
		s.Log.Info("released the addresses of a container that is gone", "handle", id)
		s.removeNote(id)
	}
	if err != nil {
		return cnierr.Wrap(cnierr.Unclassified, connect.Explain(err), "releasing addresses of containers that are gone")
	}
	return nil
}
