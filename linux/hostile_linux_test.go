package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
)

// TestForeignHostInterfaces: an interface of the host that has the pod's name
// without having been made by any plugin is somebody's, perhaps the uplink.
func TestForeignHostInterfaces(t *testing.T) {
	t.Parallel()
	t.Run("a bridge has the name", func(t *testing.T) {
		t.Parallel()
		n, pod := newNode(t), newPlace(t)
		attrs := netlink.NewLinkAttrs()
		attrs.Name = hostName
		must(t, n.handle.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
		_, err := n.add(request(pod, "c1"))
		wantCode(t, err, cnierr.NameTaken, hostName, "bridge")
		wantList(t, "interfaces", append(n.names(), pod.names()...), hostName)
	})
	t.Run("the uplink has the name as an alternative one", func(t *testing.T) {
		t.Parallel()
		n, pod := newNode(t), newPlace(t)
		n.do(func() {
			if out, err := exec.Command("ip", "link", "property", "add", "dev", uplinkName, "altname", hostName).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
		_, err := n.add(request(pod, "c1"))
		wantCode(t, err, cnierr.NameTaken, hostName, uplinkName)
		wantEqual(t, "the uplink is there", n.has(uplinkName), true)
		wantList(t, "interfaces of the pod", pod.names())
	})
}

// TestOddNames: the kernel takes these names, and so do the sysctls' paths.
func TestOddNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"eth0.5", "-x", "日本語", "a;b", `a"b`, "veth*"} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			t.Parallel()
			n, pod := newNode(t), newPlace(t)
			req := request(pod, "c1", dualStack)
			req.Attachment.IfName, req.HostInterface = name, "c."+name
			n.mustAdd(req)
			n.mustAgree(req)
			n.mustDel(dataplane.Removal{Attachment: req.Attachment, Namespace: pod.Path()})
			wantList(t, "interfaces left", append(n.names(), pod.names()...))
		})
	}
	t.Run("a pattern makes nothing", func(t *testing.T) {
		t.Parallel()
		n, pod := newNode(t), newPlace(t)
		req := request(pod, "c1")
		req.Attachment.IfName = "eth%d"
		_, err := n.add(req)
		wantCode(t, err, cnierr.InvalidEnvironment, "eth%d")
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})
}

// mustAgree demands that CHECK finds what ADD was asked for.
func (n *node) mustAgree(req dataplane.Request) {
	n.t.Helper()
	diffs, err := n.differences(dataplane.Expectation{Attachment: req.Attachment, Namespace: req.Namespace, Addresses: req.Addresses})
	must(n.t, err)
	wantList(n.t, "differences", diffs)
}

// TestFirstInterfaceAgain: while the first interface was half made a second one
// took the routes; the first one's go beside them.
func TestFirstInterfaceAgain(t *testing.T) {
	t.Parallel()
	n, pod := newNode(t), newPlace(t)
	n.addVeth(hostName, pod, "eth0")
	must(t, n.handle.LinkSetAlias(n.link(hostName), attachment("c1").Alias()))
	second := request(pod, "c1", withAddresses(netip.MustParseAddr("10.9.8.8"), netip.MustParseAddr("fd00::8")))
	second.Attachment.IfName = "net1"
	n.mustAdd(second)
	first := request(pod, "c1", dualStack)
	n.mustAdd(first)
	n.mustAgree(second)
	n.mustAgree(first)
}

// TestSecondInterfaceAgain: an ADD that was killed before it could name its
// owner had used the second name; the next one uses the first.
func TestSecondInterfaceAgain(t *testing.T) {
	t.Parallel()
	n, pod := newNode(t), newPlace(t)
	n.addVeth(secondName, pod, "eth0")
	req := request(pod, "c1", dualStack)
	n.mustAdd(req)
	n.mustAgree(req)
	wantList(t, "interfaces", append(n.names(), pod.names()...), hostName, "eth0")
}

// TestRoutesOfBGPAgents: such an agent drops what is for no pod of a block.
func TestRoutesOfBGPAgents(t *testing.T) {
	t.Parallel()
	blackhole := func(n *node, prefix string) {
		n.addRoute(&netlink.Route{Dst: ipNet(netip.MustParsePrefix(prefix)), Type: unix.RTN_BLACKHOLE, Protocol: unix.RTPROT_BIRD})
	}
	t.Run("for the block", func(t *testing.T) {
		t.Parallel()
		n, pod := newNode(t), newPlace(t)
		blackhole(n, "10.9.8.0/26")
		blackhole(n, "fd00::/122")
		n.mustAdd(request(pod, "c1", dualStack))
		n.mustAgree(request(pod, "c1", dualStack))
		n.wantReachable("10.9.8.7")
		n.mustDel(removal(pod, "c1"))
		wantList(t, "interfaces left", n.names())
	})
	for _, block := range []string{"10.9.8.7/32", "fd00::7/128"} {
		t.Run("for a block of one address "+block, func(t *testing.T) {
			t.Parallel()
			n, pod := newNode(t), newPlace(t)
			blackhole(n, block)
			address := netip.MustParsePrefix(block).Addr()
			_, err := n.add(request(pod, "c1", withAddresses(address)))
			wantCode(t, err, cnierr.NetlinkRefused, "blackhole "+block)
			wantList(t, "interfaces left", append(n.names(), pod.names()...))
		})
	}
}

// TestAddressInUse: a route of another metric, or of the host itself, says as
// well as one like ours that the address is in use.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	for _, address := range []netip.Addr{podV4, podV6} {
		prefix := netip.PrefixFrom(address, address.BitLen())
		t.Run("another interface, another metric, "+address.String(), func(t *testing.T) {
			t.Parallel()
			n, pod := newNode(t), newPlace(t)
			n.setUp(n.link(uplinkName))
			n.addRoute(&netlink.Route{LinkIndex: n.link(uplinkName).Attrs().Index, Dst: ipNet(prefix), Priority: 50})
			_, err := n.add(request(pod, "c1", withAddresses(address)))
			wantCode(t, err, cnierr.NetlinkRefused, prefix.String(), uplinkName)
			wantList(t, "interfaces left", append(n.names(), pod.names()...))
		})
		t.Run("the host's own, "+address.String(), func(t *testing.T) {
			t.Parallel()
			n, pod := newNode(t), newPlace(t)
			must(t, n.handle.LinkSetUp(n.link("lo")))
			must(t, n.handle.AddrAdd(n.link("lo"), &netlink.Addr{IPNet: ipNet(prefix)}))
			_, err := n.add(request(pod, "c1", withAddresses(address)))
			wantCode(t, err, cnierr.NetlinkRefused, prefix.String(), "the host's own", "lo")
			wantList(t, "interfaces left", append(n.names(), pod.names()...))
		})
	}
	t.Run("in another table, or through a gateway", func(t *testing.T) {
		t.Parallel()
		n, pod := newNode(t), newPlace(t)
		uplink := n.link(uplinkName)
		n.setUp(uplink)
		must(t, n.handle.AddrAdd(uplink, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("192.0.2.1/24"))}))
		address := ipNet(netip.PrefixFrom(podV4, 32))
		n.addRoute(&netlink.Route{LinkIndex: uplink.Attrs().Index, Dst: address, Table: 100})
		n.addRoute(&netlink.Route{Dst: address, Gw: net.IP{192, 0, 2, 2}, Priority: 32, Protocol: unix.RTPROT_BIRD})
		n.mustAdd(request(pod, "c1"))
		n.mustAgree(request(pod, "c1"))
	})
}

// TestLinkLocalDefaults: administrators choose how link-local addresses are
// made; the pod's gateway must come from the MAC all the same.
func TestLinkLocalDefaults(t *testing.T) {
	t.Parallel()
	for mode, name := range map[string]string{"1": "none", "2": "stable", "3": "random"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, pod := newNode(t), newPlace(t)
			if mode == "2" {
				n.setSysctl("ipv6/conf/default/stable_secret", "2001:db8::1")
			}
			n.setSysctl("ipv6/conf/default/addr_gen_mode", mode)
			n.mustAdd(request(pod, "c1", dualStack))
			wantList(t, "IPv6 addresses of the host end", n.addresses(hostName, unix.AF_INET6), "fe80::ecee:eeff:feee:eeee/64")
			n.wantReachable("fd00::7")
		})
	}
}

// TestNamespacePaths: what a runtime may pass as CNI_NETNS.
func TestNamespacePaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"symlink", "of a process", "replaced by another namespace"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, pod := newNode(t), newPlace(t)
			path := pathTo(t, pod, name)
			req := request(pod, "c1", dualStack, func(r *dataplane.Request) { r.Namespace = path })
			n.mustAdd(req)
			n.mustAgree(req)
			if name == "replaced by another namespace" {
				must(t, os.Remove(path))
				other := newPlace(t)
				n.second().mustAdd(request(other, "c2", withAddresses(netip.MustParseAddr("10.9.8.8")), func(r *dataplane.Request) { r.HostInterface = "caliother" }))
				must(t, os.Symlink(other.Path(), path))
			}
			n.mustDel(dataplane.Removal{Attachment: req.Attachment, Namespace: path})
			wantEqual(t, "the pod's interface is there", n.has(hostName), false)
			wantEqual(t, "the other's interface is there", n.has("caliother"), name == "replaced by another namespace")
		})
	}
}

// pathTo is another path of a namespace.
func pathTo(t *testing.T, pod *place, kind string) string {
	t.Helper()
	if kind != "of a process" {
		path := filepath.Join(t.TempDir(), "netns")
		must(t, os.Symlink(pod.Path(), path))
		return path
	}
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	must(t, err)
	pod.do(func() { must(t, cmd.Start()) })
	t.Cleanup(func() {
		must(t, stdin.Close())
		must(t, cmd.Wait())
	})
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
}

// TestNamespaceOfDeadProcess: DEL works also with the path of a process that
// has ended, whether or not somebody has asked for its status.
func TestNamespaceOfDeadProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("true")
	must(t, cmd.Start())
	path := fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	for end := time.Now().Add(10 * time.Second); ; {
		_, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the process does not end: %v", err)
		}
	}
	for _, state := range []string{"zombie", "reaped"} {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		n.mustDel(dataplane.Removal{Attachment: attachment("c1"), Namespace: path})
		wantList(t, "interfaces left, "+state, n.names())
		if state == "zombie" {
			must(t, cmd.Wait())
		}
	}
}

// TestNodeFullOfPods: what a verb lists of a node with a thousand interfaces
// must not cost more than some milliseconds; the bound leaves room for a busy
// machine.
func TestNodeFullOfPods(t *testing.T) {
	t.Parallel()
	n, pod, other := newNode(t), newPlace(t), newPlace(t)
	n.fill(other, 1000)
	n.mustAdd(request(pod, "c1"))
	best := time.Hour
	for range 5 {
		begin := time.Now()
		n.do(func() {
			owned, err := n.d.Owned(context.Background())
			must(t, err)
			wantEqual(t, "the number of interfaces with an owner", len(owned), 1001)
		})
		best = min(best, time.Since(begin))
	}
	if best > 60*time.Millisecond {
		t.Errorf("listing 1001 interfaces takes %v", best)
	}
	n.mustDel(removal(pod, "c1"))
	wantEqual(t, "the number of interfaces left", len(n.names()), 1000)
}

// fill makes interfaces of other pods.
func (n *node) fill(pod *place, count int) {
	n.t.Helper()
	for i := range count {
		name := fmt.Sprintf("cali%011d", i)
		n.addVeth(name, pod, fmt.Sprintf("pod%d", i))
		must(n.t, n.handle.LinkSetAlias(n.link(name), attachment(fmt.Sprintf("%064d", i)).Alias()))
	}
}
