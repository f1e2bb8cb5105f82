package linux

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
	"calico-cni/test/netns"
)

// The addresses and names that most tests use.
var (
	podV4 = netip.MustParseAddr("10.9.8.7")
	podV6 = netip.MustParseAddr("fd00::7")

	defaultRoutes = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
)

const (
	hostName   = "cali4f1d2a9c07b"
	secondName = "cali5aaaaaaaaaa"
	network    = "k8s-pod-network"
)

// row runs a row of the conformance table in parallel with the others.
func row(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run("Linux/"+name, func(t *testing.T) {
		t.Parallel()
		fn(t)
	})
}

// place is a namespace of a test with a connection to look around in it.
type place struct {
	*netns.Namespace
	t      testing.TB
	handle *netlink.Handle
}

func newPlace(t testing.TB) *place {
	t.Helper()
	ns := netns.New(t)
	handle, err := netlink.NewHandleAt(ns.Handle(), unix.NETLINK_ROUTE)
	must(t, err)
	t.Cleanup(handle.Close)
	return &place{Namespace: ns, t: t, handle: handle}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *place) do(fn func()) {
	p.t.Helper()
	p.Do(p.t, fn)
}

// link is the interface of that name, which must exist.
func (p *place) link(name string) netlink.Link {
	p.t.Helper()
	l, err := p.handle.LinkByName(name)
	if err != nil {
		p.t.Fatalf("interface %s: %v", name, err)
	}
	return l
}

func (p *place) has(name string) bool {
	p.t.Helper()
	_, exists, err := lookUp(p.handle.LinkByName(name))
	must(p.t, err)
	return exists
}

// names are the interfaces besides the loopback and the uplink.
func (p *place) names() []string {
	p.t.Helper()
	links, err := dump(context.Background(), p.handle.LinkList)
	must(p.t, err)
	var names []string
	for _, l := range links {
		if name := l.Attrs().Name; name != "lo" && !strings.HasPrefix(name, uplinkName) {
			names = append(names, name)
		}
	}
	return names
}

// addresses are those of an interface, as strings.
func (p *place) addresses(name string, family int) []string {
	p.t.Helper()
	listed, err := p.handle.AddrList(p.link(name), family)
	must(p.t, err)
	var out []string
	for _, l := range listed {
		out = append(out, l.IPNet.String())
	}
	return out
}

// routes are those of the main table of a family, as ip-route(8) would say it.
func (p *place) routes(family int) []string {
	p.t.Helper()
	listed, err := p.handle.RouteList(nil, family)
	must(p.t, err)
	var out []string
	for _, l := range listed {
		if family == unix.AF_INET6 && l.Dst != nil && l.Dst.String() == "fe80::/64" {
			continue // the kernel's own
		}
		dev, err := p.handle.LinkByIndex(l.LinkIndex)
		must(p.t, err)
		text := prefixOf(l, family).String()
		if l.Gw != nil {
			text += " via " + l.Gw.String()
		}
		text += " dev " + dev.Attrs().Name
		if family == unix.AF_INET {
			text += " scope " + l.Scope.String()
		}
		out = append(out, text+" proto "+l.Protocol.String())
	}
	return out
}

func (p *place) addRoute(r *netlink.Route) {
	p.t.Helper()
	must(p.t, p.handle.RouteAdd(r))
}

func (p *place) sysctl(path string) string {
	p.t.Helper()
	var value string
	var err error
	p.do(func() { value, err = readSysctl(path) })
	must(p.t, err)
	return value
}

func (p *place) setSysctl(path, value string) {
	p.t.Helper()
	p.do(func() { must(p.t, writeSysctl(path, value)) })
}

// sysctls is a snapshot of all of a directory in the namespace.
func (p *place) sysctls(directory string) string {
	p.t.Helper()
	var out strings.Builder
	p.do(func() {
		entries, err := os.ReadDir(sysctlRoot + directory)
		must(p.t, err)
		for _, entry := range entries {
			value, err := readSysctl(directory + "/" + entry.Name())
			if entry.IsDir() || err != nil {
				continue // a directory, or write-only
			}
			fmt.Fprintf(&out, "%s = %s\n", entry.Name(), value)
		}
	})
	return out.String()
}

// node is a host with a data plane.
type node struct {
	*place
	d *Dataplane
}

// uplinkName is the interface that every host has; it is down. Without it the
// first pod's two ends would have the same index in their namespaces, and then
// the kernel reports their carrier up to a second late.
const uplinkName = "uplink"

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{place: newPlace(t), d: New(Options{})}
	n.addOther(uplinkName)
	return n
}

func (n *node) add(req dataplane.Request) (made dataplane.Link, err error) {
	n.t.Helper()
	n.do(func() { made, err = n.d.Add(context.Background(), req) })
	return made, err
}

func (n *node) mustAdd(req dataplane.Request) dataplane.Link {
	n.t.Helper()
	made, err := n.add(req)
	if err != nil {
		n.t.Fatalf("ADD: %v", err)
	}
	return made
}

func (n *node) del(r dataplane.Removal) (err error) {
	n.t.Helper()
	n.do(func() { err = n.d.Delete(context.Background(), r) })
	return err
}

func (n *node) mustDel(r dataplane.Removal) {
	n.t.Helper()
	if err := n.del(r); err != nil {
		n.t.Fatalf("DEL: %v", err)
	}
}

// second is another plugin process on the same host, without its faults.
func (n *node) second() *node { return &node{place: n.place, d: New(Options{})} }

func (n *node) confirm(made dataplane.Link) (err error) {
	n.t.Helper()
	n.do(func() { err = n.d.Confirm(context.Background(), made) })
	return err
}

// addVeth makes a pair as the reference plugin would: without an alias.
func (n *node) addVeth(hostEnd string, pod *place, podEnd string) {
	n.t.Helper()
	p := pair{kind: kindVeth, hostName: hostEnd, podName: podEnd, queues: 1}
	pod.execute(vethRequest(p, int(n.Handle())))
}

func (p *place) execute(req *nl.NetlinkRequest) {
	p.t.Helper()
	conn, err := dial(context.Background(), p.Handle())
	must(p.t, err)
	defer conn.Close()
	_, err = conn.Execute(req, 0)
	must(p.t, err)
}

// setUp sets an interface of addOther up.
func (p *place) setUp(l netlink.Link) {
	p.t.Helper()
	must(p.t, p.handle.LinkSetUp(l))
	must(p.t, p.handle.LinkSetUp(p.link(l.Attrs().Name+"-peer")))
}

// addOther makes an interface that has nothing to do with this plugin.
func (p *place) addOther(name string) netlink.Link {
	p.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	must(p.t, p.handle.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "-peer", PeerTxQLen: -1}))
	return p.link(name)
}

func attachment(container string) workload.Attachment {
	return workload.Attachment{Network: network, ContainerID: container, IfName: "eth0"}
}

// request is an ADD of a Kubernetes pod with one IPv4 address.
func request(pod *place, container string, change ...func(*dataplane.Request)) dataplane.Request {
	req := dataplane.Request{
		Attachment:      attachment(container),
		Kubernetes:      true,
		Namespace:       pod.Path(),
		HostInterface:   hostName,
		SecondInterface: secondName,
		Addresses:       []netip.Addr{podV4},
		Routes:          defaultRoutes,
		Queues:          1,
		Device:          kindVeth,
		ReadRecord:      recordOf(dataplane.Record{}),
	}
	for _, c := range change {
		c(&req)
	}
	return req
}

func recordOf(record dataplane.Record) dataplane.RecordReader {
	return func(context.Context) (dataplane.Record, error) { return record, nil }
}

func removal(pod *place, container string) dataplane.Removal {
	r := dataplane.Removal{Attachment: attachment(container)}
	if pod != nil {
		r.Namespace = pod.Path()
	}
	return r
}

func withAddresses(addresses ...netip.Addr) func(*dataplane.Request) {
	return func(r *dataplane.Request) { r.Addresses = addresses }
}

func dualStack(r *dataplane.Request) { r.Addresses = []netip.Addr{podV4, podV6} }

func withRoutes(prefixes ...string) func(*dataplane.Request) {
	return func(r *dataplane.Request) {
		r.Routes = nil
		for _, p := range prefixes {
			r.Routes = append(r.Routes, netip.MustParsePrefix(p))
		}
	}
}

func wantCode(t testing.TB, err error, code cnierr.Code, parts ...string) {
	t.Helper()
	if err == nil || cnierr.CodeOf(err) != code {
		t.Fatalf("error has code %d, want %d: %v", cnierr.CodeOf(err), code, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not name %q: %v", part, err)
		}
	}
}

func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func wantList(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}
