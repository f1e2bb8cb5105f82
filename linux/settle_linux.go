package linux

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
)

// createAttempts is how often ADD decides anew when a parallel ADD took the
// name between the decision and the creation.
const createAttempts = 3

// create clears the way by table 9.1 A and makes the pair.
func (s *session) create(ctx context.Context, req dataplane.Request) (want desired, second bool, err error) {
	for attempt := 1; ; attempt++ {
		var name string
		name, second, err = s.settle(ctx, req)
		if err != nil {
			return desired{}, false, err
		}
		want = desire(req, name)
		err = s.createPair(want.pair)
		switch {
		case err == nil:
			return want, second, nil
		case !errors.Is(err, unix.EEXIST):
			return desired{}, false, refused(err, "creating %s pair %s on the host and %s in network namespace %s",
				want.pair.kind, name, want.pair.podName, req.Namespace)
		case attempt == createAttempts:
			return desired{}, false, cnierr.New(cnierr.NameTaken,
				"creating host interface %s for interface %s in network namespace %s: %w, %d times in a row although the name had been free; find out what else makes interfaces of this name",
				name, want.pair.podName, req.Namespace, err, attempt)
		}
		s.d.log.Info("interface name was taken meanwhile, deciding again", "host_interface", name)
	}
}

// settle decides what the host end will be called and removes what is in the
// way and may be removed.
func (s *session) settle(ctx context.Context, req dataplane.Request) (name string, second bool, err error) {
	name = req.HostInterface
	first, action, err := s.settleFirst(ctx, req)
	if err != nil {
		return "", false, err
	}
	switch action {
	case replace:
		err = s.removeFound(ctx, first)
	case overtaken:
		err = cnierr.New(cnierr.Overtaken,
			"host interface %s belongs to a newer sandbox of the pod (%s); this ADD came too late and nothing is to be done", name, first.link.describeOwner())
	case useSecond:
		name, second = req.SecondInterface, true
		err = s.settleSecond(ctx, req)
	case refuse:
		err = cnierr.New(cnierr.NameTaken,
			"host interface %s, the name for this pod, is interface %s, a %s that this plugin did not make; rename or remove it", name, first.link.name, first.link.kind)
	}
	if err == nil {
		err = s.settlePodEnd(ctx, req)
	}
	return name, second, err
}

func (s *session) settleFirst(ctx context.Context, req dataplane.Request) (found, addAction, error) {
	h, err := s.findHost(ctx, req.HostInterface)
	if err != nil {
		return found{}, "", err
	}
	action := decideFirst(h, req, nil)
	if action != readRecord {
		return h, action, nil
	}
	record, err := req.ReadRecord(ctx)
	if err != nil {
		return found{}, "", cnierr.Wrap(cnierr.TryAgainLater, err,
			"reading the endpoint record to learn whether host interface "+req.HostInterface+" belongs to a newer sandbox")
	}
	return h, decideFirst(h, req, &record), nil
}

func (s *session) settleSecond(ctx context.Context, req dataplane.Request) error {
	h, err := s.findHost(ctx, req.SecondInterface)
	if err != nil {
		return err
	}
	switch decideSecond(h, req) {
	case replace:
		return s.removeFound(ctx, h)
	case refuse:
		return cnierr.New(cnierr.NameTaken,
			"host interface %s, the name for a second interface, exists and is one %s; delete it if nothing uses it", h.link.name, h.link.describeOwner())
	}
	return nil
}

// settlePodEnd makes sure that CNI_IFNAME is free in the pod.
func (s *session) settlePodEnd(ctx context.Context, req dataplane.Request) error {
	pod, err := s.podEnd(req.Attachment.IfName)
	if err != nil || pod == nil {
		return err
	}
	peer, err := awaitOwner(ctx, func() (*link, error) { return s.hostEnd(*pod) })
	if err != nil {
		return err
	}
	if decidePodEnd(pod, peer, req) == replace {
		return notGone(s.deleteLink(ctx, peer.name, peer.index))
	}
	host := "its peer is not an interface of the host"
	if peer != nil {
		host = "its host end is " + peer.name + " " + peer.describeOwner()
	}
	return cnierr.New(cnierr.NameTaken,
		"interface %s already exists in network namespace %s (a %s, %s); it is not this attachment's, so it must be removed by whoever made it, or CNI_IFNAME must be another name",
		pod.name, req.Namespace, pod.kind, host)
}

// removeFound deletes a link that the tables let go. Gone already is as good.
func (s *session) removeFound(ctx context.Context, h found) error {
	s.d.log.Info("removing what an earlier ADD left", "host_interface", h.link.name, "index", h.link.index, "alias", h.link.alias)
	return notGone(s.deleteLink(ctx, h.link.name, h.link.index))
}

// findHost looks up a host interface by name, and its peer if the alias does
// not tell the owner.
func (s *session) findHost(ctx context.Context, name string) (found, error) {
	host, err := awaitOwner(ctx, func() (*link, error) {
		l, exists, err := lookUp(s.host.LinkByName(name))
		if err != nil {
			return nil, refused(err, "looking up host interface %s", name)
		}
		if !exists {
			return nil, nil
		}
		return &l, nil
	})
	if err != nil || host == nil {
		return found{}, err
	}
	h := found{exists: true, link: *host}
	if !host.isNamed() {
		h.peerName, h.peerHere, err = s.peerInPod(*host)
	}
	return h, err
}

// peerInPod is the name of the link's other end if that is in the pod.
func (s *session) peerInPod(host link) (name string, here bool, err error) {
	if host.peerIndex == 0 {
		return "", false, nil
	}
	id, err := s.podNamespaceID()
	if err != nil || host.peerNamespace != id {
		return "", false, err
	}
	peer, exists, err := lookUp(s.pod.LinkByIndex(host.peerIndex))
	if err != nil {
		return "", false, refused(err, "looking up the peer of host interface %s in the pod (index %d)", host.name, host.peerIndex)
	}
	if !exists || peer.peerIndex != host.index {
		return "", false, nil
	}
	return peer.name, true, nil
}
