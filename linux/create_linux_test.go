package linux

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/dataplane"
)

// errRecorded stops ADD once the request to create the pair was recorded.
var errRecorded = errors.New("recorded")

// recorder is a connection that keeps the bytes of a creation instead of
// sending them.
type recorder struct {
	rtnetlink
	record func(request []byte)
}

func (r *recorder) Execute(req *nl.NetlinkRequest, answer uint16) ([][]byte, error) {
	if req.Type != unix.RTM_NEWLINK {
		return r.rtnetlink.Execute(req, answer)
	}
	r.record(req.Serialize())
	return nil, errRecorded
}

// creation is a recorded request: in which namespace it would have been sent,
// its flags and its attributes by type.
type creation struct {
	where      string
	flags      uint16
	attributes map[uint16][]byte
}

// attributesOf decodes attributes by type.
func attributesOf(t *testing.T, body []byte) map[uint16][]byte {
	t.Helper()
	list, err := nl.ParseRouteAttr(body)
	must(t, err)
	out := map[uint16][]byte{}
	for _, a := range list {
		out[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
	}
	return out
}

// recordCreation is what ADD would send for a device. The recorded descriptors
// are checked while they are open, to be those of the wanted namespace.
func recordCreation(t *testing.T, device string, peerOf func(creation) map[uint16][]byte) creation {
	t.Helper()
	n, pod := newNode(t), newPlace(t)
	var got creation
	n.d.kernel.dial = func(ctx context.Context, ns netns.NsHandle) (rtnetlink, error) {
		conn, err := dial(ctx, ns)
		where, other := "pod", n.place
		if ns.Equal(n.Handle()) {
			where, other = "host", pod
		}
		record := func(request []byte) {
			messages, err := syscall.ParseNetlinkMessage(request)
			must(t, err)
			wantEqual(t, "the message type", messages[0].Header.Type, unix.RTM_NEWLINK)
			got = creation{where: where, flags: messages[0].Header.Flags,
				attributes: attributesOf(t, messages[0].Data[unix.SizeofIfInfomsg:])}
			peerNS := netns.NsHandle(number(peerOf(got)[unix.IFLA_NET_NS_FD]))
			wantEqual(t, "the peer goes to the other namespace", peerNS.Equal(other.Handle()), true)
		}
		return &recorder{rtnetlink: conn, record: record}, err
	}
	_, err := n.add(request(pod, "c1", func(r *dataplane.Request) { r.Device, r.MTU, r.Queues = device, 1450, 4 }))
	if !errors.Is(err, errRecorded) {
		t.Fatalf("ADD: %v", err)
	}
	return got
}

// number is a 32-bit attribute; a missing one is no valid value of any.
func number(b []byte) uint32 {
	if len(b) != 4 {
		return ^uint32(0)
	}
	return nl.NativeEndian().Uint32(b)
}

// wantEnd checks what both ends of a pair have in common.
func wantEnd(t *testing.T, which, name string, end map[uint16][]byte) {
	t.Helper()
	wantEqual(t, which+": name", unix.ByteSliceToString(end[unix.IFLA_IFNAME]), name)
	wantEqual(t, which+": MTU", number(end[unix.IFLA_MTU]), 1450)
	wantEqual(t, which+": TX queues", number(end[unix.IFLA_NUM_TX_QUEUES]), 4)
	wantEqual(t, which+": RX queues", number(end[unix.IFLA_NUM_RX_QUEUES]), 4)
	for what, attribute := range map[string]uint16{"MAC": unix.IFLA_ADDRESS, "txqueuelen": unix.IFLA_TXQLEN} {
		if _, set := end[attribute]; set {
			t.Errorf("%s: %s is set", which, what)
		}
	}
}

func TestCreationRequests(t *testing.T) {
	exclusive := uint16(unix.NLM_F_REQUEST | unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	infoOf := func(t *testing.T, c creation) (info, data map[uint16][]byte) {
		info = attributesOf(t, c.attributes[unix.IFLA_LINKINFO])
		return info, attributesOf(t, info[nl.IFLA_INFO_DATA])
	}

	row(t, "30 netkit: host end primary, L2", func(t *testing.T) {
		peerOf := func(c creation) map[uint16][]byte {
			_, data := infoOf(t, c)
			return attributesOf(t, data[nl.IFLA_NETKIT_PEER_INFO][unix.SizeofIfInfomsg:])
		}
		got := recordCreation(t, kindNetkit, peerOf)
		info, data := infoOf(t, got)
		wantEqual(t, "the namespace it is sent in", got.where, "host")
		wantEqual(t, "the flags", got.flags, exclusive)
		wantEqual(t, "the kind", string(info[nl.IFLA_INFO_KIND]), "netkit")
		wantEqual(t, "the mode", number(data[nl.IFLA_NETKIT_MODE]), uint32(netlink.NETKIT_MODE_L2))
		wantEqual(t, "the primary's policy", number(data[nl.IFLA_NETKIT_POLICY]), uint32(netlink.NETKIT_POLICY_FORWARD))
		wantEqual(t, "the peer's policy", number(data[nl.IFLA_NETKIT_PEER_POLICY]), uint32(netlink.NETKIT_POLICY_FORWARD))
		wantEnd(t, "primary", hostName, got.attributes)
		wantEnd(t, "peer", "eth0", peerOf(got))
	})

	row(t, "9 veth: pod end primary, four queues on both", func(t *testing.T) {
		peerOf := func(c creation) map[uint16][]byte {
			_, data := infoOf(t, c)
			return attributesOf(t, data[nl.VETH_INFO_PEER][unix.SizeofIfInfomsg:])
		}
		got := recordCreation(t, kindVeth, peerOf)
		info, _ := infoOf(t, got)
		wantEqual(t, "the namespace it is sent in", got.where, "pod")
		wantEqual(t, "the flags", got.flags, exclusive)
		wantEqual(t, "the kind", string(info[nl.IFLA_INFO_KIND]), "veth")
		wantEnd(t, "primary", "eth0", got.attributes)
		wantEnd(t, "peer", hostName, peerOf(got))
	})
}
