package masquerade

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"calico-cni/linux"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
	"calico-cni/test/netns"
)

// TestTraffic sends a packet from a pod through the host to another machine and
// asks that machine whom it came from.
func TestTraffic(t *testing.T) {
	t.Parallel()
	host, outside, pod := netns.New(t), netns.New(t), netns.New(t)
	podAddress := netip.MustParseAddr("10.0.0.7")
	wire(t, host, outside)

	host.Do(t, func() {
		ctx := context.Background()
		must(t, EnableForwarding(ctx, true, false))
		_, err := linux.New(linux.Options{}).Add(ctx, dataplane.Request{
			Attachment:    workload.Attachment{Network: "n", ContainerID: "c", IfName: "eth0"},
			Namespace:     pod.Path(),
			HostInterface: "cali1",
			Addresses:     []netip.Addr{podAddress},
			Routes:        []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")},
			Device:        "veth",
		})
		must(t, err)
		must(t, Ensure(ctx, []Pool{pool("10.0.0.0/16", true)}))
	})
	if got := sender(t, pod, outside, "192.0.2.2"); got != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("traffic to outside comes from %s, want the host's 192.0.2.1", got)
	}

	// The same machine inside a pool sees the pod itself.
	host.Do(t, func() {
		must(t, Ensure(context.Background(), []Pool{pool("10.0.0.0/16", true), pool("192.0.2.0/24", false)}))
	})
	if got := sender(t, pod, outside, "192.0.2.2"); got != podAddress {
		t.Errorf("traffic to another pool comes from %s, want the pod's %s", got, podAddress)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wire connects two machines: 192.0.2.1 and 192.0.2.2.
func wire(t *testing.T, host, outside *netns.Namespace) {
	t.Helper()
	host.Do(t, func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "uplink"
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "uplink", PeerTxQLen: -1,
			PeerNamespace: netlink.NsFd(outside.Handle())}))
		// Any host has a default route; without one the kernel would not
		// answer ARP for the pod's gateway.
		bringUp(t, "192.0.2.1/24", net.IPv4(192, 0, 2, 2))
	})
	outside.Do(t, func() { bringUp(t, "192.0.2.2/24", net.IPv4(192, 0, 2, 1)) })
}

func bringUp(t *testing.T, address string, gateway net.IP) {
	t.Helper()
	uplink, err := netlink.LinkByName("uplink")
	must(t, err)
	parsed, err := netlink.ParseAddr(address)
	must(t, err)
	must(t, netlink.AddrAdd(uplink, parsed))
	must(t, netlink.LinkSetUp(uplink))
	must(t, netlink.RouteAdd(&netlink.Route{Gw: gateway}))
}

// sender is the address from which a datagram of the pod arrives outside.
// Sockets stay in the namespace they were opened in.
func sender(t *testing.T, pod, outside *netns.Namespace, to string) netip.Addr {
	t.Helper()
	var receiver *net.UDPConn
	outside.Do(t, func() {
		var err error
		receiver, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(to), 0)))
		must(t, err)
	})
	defer receiver.Close()
	pod.Do(t, func() {
		conn, err := net.DialUDP("udp4", nil, receiver.LocalAddr().(*net.UDPAddr))
		must(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("hello"))
		must(t, err)
	})
	must(t, receiver.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, from, err := receiver.ReadFromUDPAddrPort(make([]byte, 16))
	if err != nil {
		t.Fatalf("nothing arrived: %v", err)
	}
	return from.Addr()
}
