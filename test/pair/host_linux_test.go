package pair

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"calico-cni/test/etcdtest"
	"calico-cni/test/netns"
)

// host is what a test takes for a machine: a network namespace and folders.
type host struct {
	network *netns.Namespace
	links   *netlink.Handle
	root    string
	// etcd is nil if the datastore is the embedded one, or read is set.
	etcd *etcdtest.Server
	// read reads a datastore of another kind, in the keys of etcd.
	read func(t *testing.T) objects
}

// newHost makes a host whose only interface is the loopback, with the
// addresses that it talks to its pods from. The kernel answers a pod's ARP
// request for its gateway only if the host has a route there, which is the
// default route on every real host.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{network: netns.New(t), root: t.TempDir()}
	for _, folder := range []string{"run", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(h.root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.links = handle(t, h.network)
	setUp(t, h.links, "lo")
	lo, err := h.links.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"192.0.2.1/32", "2001:db8::1/128"} {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.links.AddrAdd(lo, parsed); err != nil {
			t.Fatalf("adding %s to the host: %v", address, err)
		}
	}
	boot := &netlink.Route{LinkIndex: lo.Attrs().Index, Protocol: unix.RTPROT_KERNEL, Scope: netlink.SCOPE_LINK,
		Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}
	if err := h.links.RouteAdd(boot); err != nil {
		t.Fatalf("adding the host's default route: %v", err)
	}
	return h
}

func handle(t *testing.T, ns *netns.Namespace) *netlink.Handle {
	t.Helper()
	handle, err := netlink.NewHandleAt(ns.Handle())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(handle.Close)
	return handle
}

func setUp(t *testing.T, handle *netlink.Handle, name string) {
	t.Helper()
	link, err := handle.LinkByName(name)
	if err != nil {
		t.Fatalf("looking up %s: %v", name, err)
	}
	if err := handle.LinkSetUp(link); err != nil {
		t.Fatalf("setting %s up: %v", name, err)
	}
}

// file is where the test finds a file of the host.
func (h *host) file(path string) string {
	return filepath.Join(h.root, strings.Replace(path, "/var/run/", "/run/", 1))
}

// write puts a file on the host.
func (h *host) write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.file(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.file(path), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// linkByAlias returns the host interface with this alias, or nil.
func (h *host) linkByAlias(t *testing.T, alias string) netlink.Link {
	t.Helper()
	for _, link := range h.list(t) {
		if link.Attrs().Alias == alias {
			return link
		}
	}
	return nil
}

func (h *host) list(t *testing.T) []netlink.Link {
	t.Helper()
	links, err := h.links.LinkList()
	if err != nil {
		t.Fatalf("listing the host's interfaces: %v", err)
	}
	return links
}

// pod is a container as a runtime knows it.
type pod struct {
	container string
	ifName    string
	args      string
	network   *netns.Namespace
	links     *netlink.Handle
}

// newPod makes a pod that is on no network yet.
func newPod(t *testing.T, container, args string) *pod {
	t.Helper()
	p := &pod{container: container, ifName: "eth0", args: args, network: netns.New(t)}
	p.links = handle(t, p.network)
	return p
}

// sandbox is another container in the same namespace.
func (p *pod) sandbox(container string) *pod {
	other := *p
	other.container = container
	return &other
}

// second is the same container's attachment of another interface.
func (p *pod) second(ifName string) *pod {
	other := *p
	other.ifName = ifName
	return &other
}

// alias is what ADD writes on the host's end.
func (p *pod) alias() string { return "calico-cni/" + network + "/" + p.container + "/" + p.ifName }

func (p *pod) handleID() string { return network + "." + p.container }

// linkOf returns the host interface that a result names.
func (h *host) linkOf(t *testing.T, r result) netlink.Link {
	t.Helper()
	link, err := h.links.LinkByName(r.Interfaces[0].Name)
	if err != nil {
		t.Fatalf("interface %s of the result: %v", r.Interfaces[0].Name, err)
	}
	return link
}

func digest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// check is a CHECK with the result of the pod's ADD.
func (p *pod) check(t *testing.T, c config, added outcome) call {
	t.Helper()
	return p.verb(t, "CHECK", c.with("prevResult", json.RawMessage(added.stdout)))
}

// addRoute adds a host route as an agent or an administrator would.
func (h *host) addRoute(t *testing.T, link netlink.Link, address string) {
	t.Helper()
	ip := net.ParseIP(address)
	route := &netlink.Route{
		LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)},
	}
	if err := h.links.RouteAdd(route); err != nil {
		t.Fatalf("adding a route to %s: %v", address, err)
	}
}
