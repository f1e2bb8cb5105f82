package storm

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"calico-cni/test/etcdtest"
	"calico-cni/test/netns"
)

// The host's addresses, and the port on which it echoes what pods send.
const (
	hostV4, hostV6 = "192.0.2.1", "2001:db8::1"
	echoPort       = 7
)

// host is what the storm takes for a machine: a network namespace and folders.
type host struct {
	network *netns.Namespace
	links   *netlink.Handle
	root    string
	where   executables
	// plugins is the folder of the pair.
	plugins string
	conf    config
	// etcd is nil if the datastore is the embedded one.
	etcd *etcdtest.Server
}

// The kinds of host that storms rage on.
const (
	embedded = "embedded"
	etcd     = "etcd"
	// executed is embedded with an IPAM plugin of another build, which is
	// executed and outlives a killed network plugin.
	executed = "executed"
)

// newHostOf makes a host of a kind.
func newHostOf(t *testing.T, kind string) *host {
	t.Helper()
	h := newHost(t)
	switch kind {
	case etcd:
		h.onEtcd(t)
	case executed:
		h.plugins = h.where.strangers
	}
	return h
}

// newHost makes a host with an uplink and default routes: the kernel answers
// a pod's ARP for its gateway only on a host that has a route to it.
func newHost(t *testing.T) *host {
	t.Helper()
	where, err := build()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{network: netns.New(t), root: t.TempDir(), where: where, plugins: where.plugins, conf: newConfig()}
	for _, folder := range []string{"run", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(h.root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if h.links, err = netlink.NewHandleAt(h.network.Handle()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.links.Close)
	if err := h.wire(); err != nil {
		t.Fatalf("wiring the host: %v", err)
	}
	h.listen(t)
	return h
}

// wire gives the host its loopback, addresses, uplink and default routes.
func (h *host) wire() error {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "wire"}
	if err := h.links.LinkAdd(pair); err != nil {
		return err
	}
	for _, name := range []string{"lo", "wire", "uplink"} {
		link, err := h.links.LinkByName(name)
		if err != nil {
			return err
		}
		if err := h.links.LinkSetUp(link); err != nil {
			return err
		}
	}
	for address, gateway := range map[string]string{hostV4 + "/24": "192.0.2.254", hostV6 + "/64": "2001:db8::fe"} {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		parsed.Flags = 0x02 // IFA_F_NODAD
		if err := h.links.AddrAdd(pair, parsed); err != nil {
			return err
		}
		if err := h.links.RouteAdd(&netlink.Route{LinkIndex: pair.Attrs().Index, Gw: net.ParseIP(gateway)}); err != nil {
			return err
		}
	}
	return nil
}

// listen echoes on both of the host's addresses.
func (h *host) listen(t *testing.T) {
	t.Helper()
	for _, address := range []string{hostV4, hostV6} {
		h.network.Do(t, func() {
			socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address), Port: echoPort})
			if err != nil {
				t.Fatalf("listening on %s: %v", address, err)
			}
			t.Cleanup(func() { socket.Close() })
			go echo(socket)
		})
	}
}

func echo(socket *net.UDPConn) {
	var packet [64]byte
	for {
		n, from, err := socket.ReadFromUDPAddrPort(packet[:])
		if err != nil {
			return
		}
		_, _ = socket.WriteToUDPAddrPort(packet[:n], from) // the pod sends again
	}
}

// file is where the test finds a file of the host.
func (h *host) file(path string) string {
	return filepath.Join(h.root, strings.Replace(path, "/var/run/", "/run/", 1))
}

// onEtcd gives the host a cluster's datastore with two pools.
func (h *host) onEtcd(t *testing.T) {
	t.Helper()
	h.etcd = etcdtest.Start(t, etcdtest.Options{})
	h.fill(t)
	h.conf["etcd_endpoints"] = "http://" + h.proxy(t, strings.TrimPrefix(h.etcd.Endpoint, "http://"))
}

// fill puts into the datastore what a cluster has before its first pod.
func (h *host) fill(t *testing.T) {
	t.Helper()
	const resources = "/calico/resources/v3/projectcalico.org/"
	resource := func(kind, path, name, spec string) {
		h.etcd.Put(t, resources+path+"/"+name, fmt.Sprintf(
			`{"kind":%q,"apiVersion":"projectcalico.org/v3","metadata":{"name":%q},"spec":{%s}}`, kind, name, spec))
	}
	resource("ClusterInformation", "clusterinformations", "default", `"clusterGUID":"1234","datastoreReady":true`)
	resource("Node", "nodes", nodeName, "")
	resource("IPPool", "ippools", "pool4", `"cidr":"10.77.0.0/24","blockSize":29,"nodeSelector":"all()"`)
	resource("IPPool", "ippools", "pool6", `"cidr":"fd00:77::/112","blockSize":125,"nodeSelector":"all()"`)
	// With a cluster's datastore that is the node agent's business.
	h.network.Do(t, func() {
		for _, path := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
	delete(h.conf, "pools")
}
