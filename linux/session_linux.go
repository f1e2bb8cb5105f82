package linux

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/workload"
)

// session is what one verb has open: the host's namespace, that of the calling
// thread, and for most verbs the pod's.
type session struct {
	d      *Dataplane
	hostNS netns.NsHandle
	podNS  netns.NsHandle
	host   rtnetlink
	pod    rtnetlink
	// hanging: a deletion that never ended still uses the host's connection.
	hanging bool
}

// openHost begins a session without a pod.
func (d *Dataplane) openHost(ctx context.Context) (*session, error) {
	own, err := ownNamespace()
	if err != nil {
		return nil, err
	}
	host, err := d.kernel.dial(ctx, own)
	if err != nil {
		own.Close()
		return nil, refused(err, "opening a netlink socket on the host")
	}
	return &session{d: d, hostNS: own, podNS: netns.None(), host: host}, nil
}

// openPod begins a session with a pod that must be there.
func (d *Dataplane) openPod(ctx context.Context, namespace string) (*session, error) {
	s, err := d.openHost(ctx)
	if err != nil {
		return nil, err
	}
	pod, err := d.openPodNamespace(namespace, s.hostNS)
	if err == nil {
		err = s.enter(ctx, pod, namespace)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// enter gives the session a connection in the pod; it owns the handle then.
func (s *session) enter(ctx context.Context, pod netns.NsHandle, namespace string) error {
	s.podNS = pod
	var err error
	if s.pod, err = s.d.kernel.dial(ctx, pod); err != nil {
		return refused(err, "opening a netlink socket in network namespace %s", namespace)
	}
	return nil
}

func (s *session) close() {
	if s.pod != nil {
		s.pod.Close()
	}
	if !s.hanging {
		s.host.Close()
	}
	if s.podNS.IsOpen() {
		s.podNS.Close()
	}
	s.hostNS.Close()
}

// noNamespaceID is equal to no link's peerNamespace.
const noNamespaceID = -2

// podNamespaceID is the id by which the host's links know the pod's namespace.
// The kernel gives the id when it first reports such a link, so it is asked
// after the link was read.
func (s *session) podNamespaceID() (int, error) {
	if s.hostNS.Equal(s.podNS) {
		return sameNamespace, nil
	}
	id, err := s.host.GetNetNsIdByFd(int(s.podNS))
	if err != nil {
		return noNamespaceID, refused(err, "asking for the id of the pod's network namespace")
	}
	if id < 0 {
		return noNamespaceID, nil
	}
	return id, nil
}

// podEnd looks up CNI_IFNAME in the pod; nil if there is none.
func (s *session) podEnd(ifName string) (*link, error) {
	pod, exists, err := lookUp(s.pod.LinkByName(ifName))
	if err != nil {
		return nil, refused(err, "looking up interface %s in the pod", ifName)
	}
	if !exists {
		return nil, nil
	}
	return &pod, nil
}

// hostEnd looks up the other end of a pod's interface; nil if that is not in
// the host's namespace. An index alone proves nothing: the link found must name
// the pod's end as its own peer.
func (s *session) hostEnd(pod link) (*link, error) {
	if !pod.isPair() || pod.peerIndex == 0 {
		return nil, nil
	}
	host, exists, err := lookUp(s.host.LinkByIndex(pod.peerIndex))
	if err != nil {
		return nil, refused(err, "looking up the host end of interface %s (index %d)", pod.name, pod.peerIndex)
	}
	if !exists || !host.isPair() || host.peerIndex != pod.index {
		return nil, nil
	}
	id, err := s.podNamespaceID()
	if err != nil || host.peerNamespace != id {
		return nil, err
	}
	return &host, nil
}

// A link may be met without an alias for the moment between its creation and
// its naming (linux data plane 9.1).
const (
	aliasWait = 200 * time.Millisecond
	aliasPoll = 5 * time.Millisecond
)

// awaitOwner reads a link until its alias names an owner, it is gone, or the
// time for that is up.
func awaitOwner(ctx context.Context, read func() (*link, error)) (*link, error) {
	for end := time.Now().Add(aliasWait); ; {
		l, err := read()
		if err != nil || l == nil {
			return nil, err
		}
		if l.isNamed() || time.Now().After(end) {
			return l, nil
		}
		if err := pause(ctx, aliasPoll); err != nil {
			return nil, refused(err, "waiting for the alias of host interface %s", l.name)
		}
	}
}

// deleteLink deletes a link of the host by its index. It waits no longer than
// the kernel may take; the thread that hangs in the kernel is left behind.
func (s *session) deleteLink(ctx context.Context, name string, index int) error {
	done := make(chan error, 1)
	go func() { done <- s.host.LinkDel(byIndex(index)) }()

	limit := time.NewTimer(s.d.kernel.deletionLimit)
	defer limit.Stop()
	select {
	case err := <-done:
		if err != nil {
			return refused(err, "deleting host interface %s (index %d)", name, index)
		}
		return nil
	case <-limit.C:
		s.hanging = true
		return cnierr.New(cnierr.NetlinkRefused,
			"deleting host interface %s (index %d): the kernel did not finish within %v; the runtime will retry, and if it stays so the host must be rebooted",
			name, index, s.d.kernel.deletionLimit)
	case <-ctx.Done():
		s.hanging = true
		return refused(ctx.Err(), "deleting host interface %s (index %d)", name, index)
	}
}

// skipStats leaves the counters out of a dump of links, most of its size
// (RTEXT_FILTER_SKIP_STATS).
const skipStats = 1 << 3

// namedLinks lists the links of the host whose alias names an owner. Only
// index, name and alias are filled in.
func (s *session) namedLinks(ctx context.Context) ([]link, error) {
	answers, err := dump(ctx, func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
		return s.host.Execute(req, unix.RTM_NEWLINK)
	})
	if err != nil {
		return nil, refused(err, "listing the interfaces of the host")
	}
	var links []link
	for _, answer := range answers {
		l, err := nameAndAlias(answer)
		if err != nil {
			return nil, refused(err, "reading the list of the host's interfaces")
		}
		if l.isNamed() {
			links = append(links, l)
		}
	}
	return links, nil
}

// nameAndAlias reads these attributes of a link message. The library's parser
// makes a list of all fifty, which takes as long as the kernel's dump of them.
func nameAndAlias(message []byte) (link, error) {
	header := nl.DeserializeIfInfomsg(message)
	l := link{index: int(header.Index)}
	for rest := message[header.Len():]; len(rest) >= unix.SizeofRtAttr; {
		size := int(nl.NativeEndian().Uint16(rest))
		if size < unix.SizeofRtAttr || size > len(rest) {
			return link{}, fmt.Errorf("attribute of %d bytes in a message with %d left: %w", size, len(rest), unix.EBADMSG)
		}
		value := rest[unix.SizeofRtAttr:size]
		switch nl.NativeEndian().Uint16(rest[2:]) {
		case unix.IFLA_IFNAME:
			l.name = unix.ByteSliceToString(value)
		case unix.IFLA_IFALIAS:
			l.alias = unix.ByteSliceToString(value)
			return l, nil // the name comes before it
		}
		rest = rest[min((size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(rest)):]
	}
	return l, nil
}

// attachmentLinks are the links of the host that name this attachment.
func (s *session) attachmentLinks(ctx context.Context, a workload.Attachment) ([]link, error) {
	named, err := s.namedLinks(ctx)
	var own []link
	for _, l := range named {
		if l.isOurs(a) {
			own = append(own, l)
		}
	}
	return own, err
}
