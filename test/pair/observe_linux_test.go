package pair

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addressAt is the address of a block's ordinal.
func addressAt(t *testing.T, cidr string, ordinal int) string {
	t.Helper()
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		t.Fatal(err)
	}
	address := prefix.Addr()
	for range ordinal {
		address = address.Next()
	}
	return address.String()
}

// state is everything of a host that a plugin may change, as lines that can be
// compared and read.
type state []string

// state looks at the host: interfaces, addresses, routes, netfilter tables,
// the datastore, and the attachment notes.
func (h *host) state(t *testing.T) state {
	t.Helper()
	s := kernelState(t, "host", h.links)
	s = append(s, "tables: "+h.tables(t))
	for _, key := range h.objects(t).keys() {
		s = append(s, key+" = "+h.objects(t)[key])
	}
	return append(s, h.notes(t)...)
}

// kernelState is the part of one network namespace. What the kernel counts or
// times is left out.
func kernelState(t *testing.T, where string, handle *netlink.Handle) state {
	t.Helper()
	var s state
	links, err := handle.LinkList()
	if err != nil {
		t.Fatalf("listing interfaces: %v", err)
	}
	for _, link := range links {
		a := link.Attrs()
		s = append(s, fmt.Sprintf("%s link %d %s alias %q mac %s mtu %d", where, a.Index, a.Name, a.Alias, a.HardwareAddr, a.MTU))
		addresses, err := handle.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatalf("listing addresses of %s: %v", a.Name, err)
		}
		for _, address := range addresses {
			s = append(s, fmt.Sprintf("%s address %s on %s", where, address.IPNet, a.Name))
		}
	}
	for _, route := range routes(t, handle) {
		s = append(s, where+" route "+route)
	}
	return s
}

// routes lists the routes of every table, except those the kernel makes by
// itself.
func routes(t *testing.T, handle *netlink.Handle) []string {
	t.Helper()
	found, err := handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		t.Fatalf("listing routes: %v", err)
	}
	var texts []string
	for _, route := range found {
		if route.Protocol != unix.RTPROT_KERNEL {
			texts = append(texts, fmt.Sprintf("%s via %s dev %d table %d", route.Dst, route.Gw, route.LinkIndex, route.Table))
		}
	}
	slices.Sort(texts)
	return texts
}

// tables lists the host's netfilter tables.
func (h *host) tables(t *testing.T) string {
	t.Helper()
	var out []byte
	h.network.Do(t, func() {
		var err error
		if out, err = exec.Command("nft", "list", "tables").CombinedOutput(); err != nil {
			t.Fatalf("nft list tables: %v\n%s", err, out)
		}
	})
	return strings.TrimSpace(string(out))
}

// notes lists the attachment notes, which are named by a digest.
func (h *host) notes(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(h.file("/var/lib/calico/cni"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var notes []string
	for _, entry := range entries {
		if len(entry.Name()) == 64 {
			content, err := os.ReadFile(filepath.Join(h.file("/var/lib/calico/cni"), entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			notes = append(notes, "note "+strings.TrimSpace(string(content)))
		}
	}
	return notes
}

// unchanged demands that the host is as it was.
func (h *host) unchanged(t *testing.T, before state) {
	t.Helper()
	if after := h.state(t); !slices.Equal(after, before) {
		t.Errorf("the host has changed:\n%s", difference(before, after))
	}
}

func difference(before, after state) string {
	var text strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			text.WriteString("- " + line + "\n")
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			text.WriteString("+ " + line + "\n")
		}
	}
	return text.String()
}

// nothingLeft demands that no pod has left a trace: no interface, route,
// allocation, handle, record or note.
func (h *host) nothingLeft(t *testing.T) {
	t.Helper()
	for _, link := range h.list(t) {
		if link.Attrs().Name != "lo" {
			t.Errorf("interface %s (alias %q) is left", link.Attrs().Name, link.Attrs().Alias)
		}
	}
	for _, route := range routes(t, h.links) {
		t.Errorf("route %s is left", route)
	}
	h.nothingAllocated(t)
	left := h.objects(t)
	for _, key := range append(left.under("/ipam/v2/handle/").keys(), left.under("/workloadendpoints/").keys()...) {
		t.Errorf("%s is left", key)
	}
	for _, note := range h.notes(t) {
		t.Errorf("%s is left", note)
	}
}

func (h *host) nothingAllocated(t *testing.T) {
	t.Helper()
	if left := h.objects(t).allocated(t); len(left) > 0 {
		t.Errorf("addresses are left: %v", left)
	}
}

// holds demands that a pod's handle holds exactly these addresses.
func (h *host) holds(t *testing.T, p *pod, addresses ...string) {
	t.Helper()
	slices.Sort(addresses)
	if have := h.objects(t).allocated(t)[p.handleID()]; !slices.Equal(have, addresses) {
		t.Errorf("handle %s holds %v, want %v", p.handleID(), have, addresses)
	}
}

// works demands that the pod is connected: its interface, its host end with
// its alias, its addresses, their routes, and a packet each way.
func (h *host) works(t *testing.T, p *pod, r result) {
	t.Helper()
	link := h.linkByAlias(t, p.alias())
	if link == nil {
		t.Errorf("no interface of the host is %s's", p.container)
		return
	}
	inside, err := p.links.LinkByName(p.ifName)
	if err != nil {
		t.Errorf("interface %s of the pod: %v", p.ifName, err)
		return
	}
	if inside.Attrs().ParentIndex != link.Attrs().Index {
		t.Errorf("the pod's %s is not connected to %s", p.ifName, link.Attrs().Name)
	}
	have := routes(t, h.links)
	for _, address := range r.addresses() {
		ip := netip.MustParseAddr(address)
		want := fmt.Sprintf("%s via <nil> dev %d table 254", netip.PrefixFrom(ip, ip.BitLen()), link.Attrs().Index)
		if !slices.Contains(have, want) {
			t.Errorf("the host has no route %q; it has %q", want, have)
		}
		h.reaches(t, address)
	}
	h.holds(t, p, r.addresses()...)
}

// reaches sends a packet from the host to a pod's address and waits for the
// answer.
func (h *host) reaches(t *testing.T, address string) {
	t.Helper()
	h.network.Do(t, func() {
		if out, err := exec.Command("ping", "-c", "1", "-W", "2", address).CombinedOutput(); err != nil {
			t.Errorf("ping %s: %v\n%s", address, err, out)
		}
	})
}

// record returns the only endpoint record.
func (h *host) record(t *testing.T) endpoint {
	t.Helper()
	all := h.objects(t).endpoints(t)
	if len(all) != 1 {
		t.Fatalf("there are %d endpoint records, want 1: %v", len(all), slices.Sorted(maps.Keys(all)))
	}
	for _, e := range all {
		return e
	}
	panic("unreachable")
}

// removeNotes makes the host forget its attachment notes.
func (h *host) removeNotes(t *testing.T) {
	t.Helper()
	folder := h.file("/var/lib/calico/cni")
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if len(entry.Name()) == 64 {
			if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}
