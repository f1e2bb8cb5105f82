package linux

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
)

// Delete removes what belongs to this attachment: the interface in the pod by
// table 9.1 B, then every host link whose alias names it. If the namespace is
// the plugin's own, nothing in it is touched, the second step is done all the
// same, and the error has code 8; the caller still releases the addresses then.
func (d *Dataplane) Delete(ctx context.Context, r dataplane.Removal) error {
	s, err := d.openHost(ctx)
	if err != nil {
		return err
	}
	defer s.close()

	own, err := s.deleteInPod(ctx, r)
	if err != nil {
		return err
	}
	if err := s.deleteByAlias(ctx, r); err != nil {
		return err
	}
	if own {
		return errOwnNamespace(r.Namespace)
	}
	return nil
}

// deleteInPod is the first step. own reports that the namespace is the
// plugin's, so that nothing was done.
func (s *session) deleteInPod(ctx context.Context, r dataplane.Removal) (own bool, err error) {
	pod, err := openNamespace(r.Namespace)
	if errors.Is(err, errNoNamespace) {
		return false, nil
	}
	if err != nil {
		return false, refused(err, "opening network namespace %s (CNI_NETNS)", r.Namespace)
	}
	if err := s.enter(ctx, pod, r.Namespace); err != nil {
		return false, err
	}
	if s.podNS.Equal(s.hostNS) && !s.d.allowOwn {
		return true, nil
	}
	return false, s.deletePodEnd(ctx, r)
}

func (s *session) deletePodEnd(ctx context.Context, r dataplane.Removal) error {
	pod, err := s.podEnd(r.Attachment.IfName)
	if err != nil || pod == nil {
		return err
	}
	host, err := awaitOwner(ctx, func() (*link, error) { return s.hostEnd(*pod) })
	if err != nil {
		return err
	}
	var onPod []netip.Addr
	if host != nil && !host.isNamed() {
		if onPod, err = s.addressesOf(ctx, *pod); err != nil {
			return err
		}
	}
	switch decideRemoval(r, pod, host, onPod) {
	case remove:
		return notGone(s.deleteLink(ctx, host.name, host.index))
	case leaveSuccessor:
		s.d.log.Info("the namespace is used by a newer sandbox, interface left alone",
			"pod_interface", pod.name, "namespace", r.Namespace, "host_interface", host.name, "alias", host.alias)
	case leaveForeign:
		s.d.log.Warn("interface was not made by this plugin, left alone",
			"pod_interface", pod.name, "namespace", r.Namespace, "kind", pod.kind)
	}
	return nil
}

// addressesOf are the addresses of an interface in the pod.
func (s *session) addressesOf(ctx context.Context, pod link) ([]netip.Addr, error) {
	prefixes, err := listAddresses(ctx, s.pod, pod.index)
	if err != nil {
		return nil, refused(err, "listing the addresses of interface %s in the pod", pod.name)
	}
	addresses := make([]netip.Addr, len(prefixes))
	for i, prefix := range prefixes {
		addresses[i] = prefix.Addr()
	}
	return addresses, nil
}

func listAddresses(ctx context.Context, sock rtnetlink, index int) ([]netip.Prefix, error) {
	listed, err := dump(ctx, func() ([]netlink.Addr, error) { return sock.AddrList(byIndex(index), unix.AF_UNSPEC) })
	if err != nil {
		return nil, err
	}
	prefixes := make([]netip.Prefix, len(listed))
	for i, l := range listed {
		bits, _ := l.Mask.Size()
		prefixes[i] = netip.PrefixFrom(addrOf(l.IP), bits)
	}
	return prefixes, nil
}

func (s *session) deleteByAlias(ctx context.Context, r dataplane.Removal) error {
	links, err := s.attachmentLinks(ctx, r.Attachment)
	if err != nil {
		return err
	}
	var failures []error
	for _, l := range links {
		failures = append(failures, notGone(s.deleteLink(ctx, l.name, l.index)))
	}
	return errors.Join(failures...)
}

// Owned lists the host interfaces that name an owner.
func (d *Dataplane) Owned(ctx context.Context) ([]dataplane.Found, error) {
	s, err := d.openHost(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	links, err := s.namedLinks(ctx)
	if err != nil {
		return nil, err
	}
	owned := make([]dataplane.Found, len(links))
	for i, l := range links {
		owner, _ := l.owner()
		owned[i] = dataplane.Found{HostInterface: l.name, Index: l.index, Alias: l.alias, Owner: owner}
	}
	return owned, nil
}

// OwnedBy lists those of one container in one network.
func (d *Dataplane) OwnedBy(ctx context.Context, a workload.Attachment) ([]dataplane.Found, error) {
	owned, err := d.Owned(ctx)
	return slices.DeleteFunc(owned, func(f dataplane.Found) bool {
		return !f.Owner.HasContainer(a.ContainerID) || !f.Owner.InNetwork(a.Network)
	}), err
}

// Remove deletes one of Owned if it still names the same owner; one that is
// gone is no error.
func (d *Dataplane) Remove(ctx context.Context, f dataplane.Found) error {
	s, err := d.openHost(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	l, exists, err := lookUp(s.host.LinkByIndex(f.Index))
	if err != nil {
		return refused(err, "looking up host interface %s (index %d)", f.HostInterface, f.Index)
	}
	if !exists || l.alias != f.Alias {
		return nil
	}
	return notGone(s.deleteLink(ctx, l.name, l.index))
}
