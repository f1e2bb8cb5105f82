package linux

import (
	"errors"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// createPair creates both ends in one request each of which is born in its
// namespace (linux data plane 4). Only a kernel without netkit gets a veth
// instead of one.
func (s *session) createPair(p pair) error {
	if p.kind != kindNetkit {
		return s.createVeth(p)
	}
	_, err := s.host.Execute(netkitRequest(p, int(s.podNS)), 0)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	s.d.log.Info("the kernel has no netkit, using veth", "host_interface", p.hostName)
	return s.createVeth(p)
}

// createVeth is sent in the pod, so that the pod's end is the primary.
func (s *session) createVeth(p pair) error {
	_, err := s.pod.Execute(vethRequest(p, int(s.hostNS)), 0)
	return err
}

// vethRequest creates the pod's end where it is sent and the host's end in the
// namespace of the descriptor. The host's MAC is set later: some kernels ignore
// one in this request.
func vethRequest(p pair, hostNS int) *nl.NetlinkRequest {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kindVeth))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	addPeer(data.AddRtAttr(nl.VETH_INFO_PEER, nil), p, p.hostName, hostNS)
	return newLinkRequest(p, p.podName, info)
}

// netkitRequest creates the host's end where it is sent, as the primary, where
// the policy agent attaches its programs, and the pod's end as its peer.
func netkitRequest(p pair, podNS int) *nl.NetlinkRequest {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kindNetkit))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_NETKIT_MODE, nl.Uint32Attr(uint32(netlink.NETKIT_MODE_L2)))
	data.AddRtAttr(nl.IFLA_NETKIT_POLICY, nl.Uint32Attr(uint32(netlink.NETKIT_POLICY_FORWARD)))
	data.AddRtAttr(nl.IFLA_NETKIT_PEER_POLICY, nl.Uint32Attr(uint32(netlink.NETKIT_POLICY_FORWARD)))
	addPeer(data.AddRtAttr(nl.IFLA_NETKIT_PEER_INFO, nil), p, p.podName, podNS)
	return newLinkRequest(p, p.hostName, info)
}

// newLinkRequest is the request for the primary end; info describes the peer.
func newLinkRequest(p pair, primary string, info *nl.RtAttr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	for _, attribute := range endAttributes(p, primary) {
		req.AddData(attribute)
	}
	req.AddData(info)
	return req
}

func addPeer(peer *nl.RtAttr, p pair, name string, namespace int) {
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	for _, attribute := range endAttributes(p, name) {
		peer.AddChild(attribute)
	}
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(namespace)))
}

// endAttributes are set on both ends explicitly: a netkit peer inherits none.
func endAttributes(p pair, name string) []*nl.RtAttr {
	attributes := []*nl.RtAttr{
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)),
		nl.NewRtAttr(unix.IFLA_NUM_TX_QUEUES, nl.Uint32Attr(uint32(p.queues))),
		nl.NewRtAttr(unix.IFLA_NUM_RX_QUEUES, nl.Uint32Attr(uint32(p.queues))),
	}
	if p.mtu != 0 {
		attributes = append(attributes, nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(p.mtu))))
	}
	return attributes
}
