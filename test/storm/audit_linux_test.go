package storm

import (
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// uplinks are the host's own interfaces.
var uplinks = []string{"lo", "uplink", "wire", "members", "member0", "member1", "member2"}

// survivor is a live attachment.
type survivor struct {
	*container
	ifName string
	*attachment
}

func (b *book) survivors() []survivor {
	var all []survivor
	for _, c := range b.containers {
		for _, ifName := range []string{"eth0", "net1"} {
			if a := c.attachment(ifName); a.state == live {
				all = append(all, survivor{c, ifName, a})
			}
		}
	}
	return all
}

func (s survivor) alias() string { return "calico-cni/" + networkName + "/" + s.id + "/" + s.ifName }

func (s survivor) handle() string { return networkName + "." + s.id }

func (s survivor) String() string { return s.id + " " + s.ifName }

// audit demands, after a GC, that exactly what the survivors need is on the
// host and in the datastore, and that every one of them works.
func (b *book) audit(t *testing.T) {
	t.Helper()
	all := b.survivors()
	b.auditLinks(t, all)
	b.auditRoutes(t, all)
	objects := b.host.objects(t)
	b.auditRecords(t, all, objects)
	b.auditAddresses(t, all, objects)
	b.auditNotes(t, all)
	b.auditWork(t, all)
}

// same compares two lists in any order.
func same(t *testing.T, what string, have, want []string) {
	t.Helper()
	for _, line := range have {
		if !slices.Contains(want, line) {
			t.Errorf("%s: %s is too much", what, line)
		}
	}
	for _, line := range want {
		if !slices.Contains(have, line) {
			t.Errorf("%s: %s is missing", what, line)
		}
	}
	if len(have) != len(want) {
		t.Errorf("%s: %d of them, want %d", what, len(have), len(want))
	}
}

func (b *book) auditLinks(t *testing.T, all []survivor) {
	t.Helper()
	var want []string
	for _, s := range all {
		want = append(want, s.result.Interfaces[0].Name+" alias "+s.alias())
	}
	same(t, "interfaces", slices.DeleteFunc(b.host.interfaces(t), func(name string) bool {
		return strings.HasSuffix(name, nameless) && b.halfMade()
	}), want)
}

// nameless ends the description of a link that is nobody's.
const nameless = " alias "

// halfMade: an ADD that was killed before it gave its link an alias leaves one
// that GC must not touch (Linux data plane contract 9.3). It goes with the
// sandbox, or with the next ADD or DEL.
func (b *book) halfMade() bool {
	return slices.ContainsFunc(b.containers, func(c *container) bool { return c.killed && !c.sandbox.gone })
}

// interfaces are the host's, without its own.
func (h *host) interfaces(t *testing.T) []string {
	t.Helper()
	links, err := h.links.LinkList()
	if err != nil {
		t.Fatalf("listing the host's interfaces: %v", err)
	}
	var have []string
	for _, link := range links {
		if !slices.Contains(uplinks, link.Attrs().Name) {
			have = append(have, link.Attrs().Name+" alias "+link.Attrs().Alias)
		}
	}
	return have
}

func (b *book) auditRoutes(t *testing.T, all []survivor) {
	t.Helper()
	var want []string
	for _, s := range all {
		for _, address := range s.result.addresses() {
			want = append(want, address+" dev "+s.result.Interfaces[0].Name)
		}
	}
	same(t, "routes", b.host.routes(t), want)
}

// routes are the host's to single addresses, in any table.
func (h *host) routes(t *testing.T) []string {
	t.Helper()
	found, err := h.links.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		t.Fatalf("listing the host's routes: %v", err)
	}
	var have []string
	for _, route := range found {
		if route.Dst == nil || route.Gw != nil || route.Protocol == unix.RTPROT_KERNEL {
			continue
		}
		name := fmt.Sprint(route.LinkIndex)
		if link, err := h.links.LinkByIndex(route.LinkIndex); err == nil {
			name = link.Attrs().Name
		}
		have = append(have, route.Dst.IP.String()+" dev "+name)
	}
	return have
}

// firstName is the host interface of the container's first attachment, the only
// one of a pod that has a record.
func (c *container) firstName() string {
	if c.pod == "" {
		return "cali" + c.id[:11]
	}
	return fmt.Sprintf("cali%x", sha1.Sum([]byte("shop."+c.pod)))[:15]
}

// auditRecords: the survivors' records, and none of a container that is gone.
func (b *book) auditRecords(t *testing.T, all []survivor, o objects) {
	t.Helper()
	records := o.records(t)
	for _, s := range all {
		name := s.result.Interfaces[0].Name
		record, found := records[name]
		switch {
		case !found && name == s.firstName():
			t.Errorf("%v: no record names interface %s", s, name)
		case found && record != s.id:
			t.Errorf("%v: the record of interface %s names container %s", s, name, record)
		}
	}
	for name, id := range records {
		if !slices.ContainsFunc(all, func(s survivor) bool { return s.id == id }) {
			t.Errorf("the record of interface %s names container %s, which is gone", name, id)
		}
	}
}

// auditAddresses: every survivor has its addresses, nobody else any, and the
// handles count what the blocks hold.
func (b *book) auditAddresses(t *testing.T, all []survivor, o objects) {
	t.Helper()
	held, counted := o.allocated(t), o.handles(t)
	tries := map[string]int{}
	owner := map[string]string{}
	for _, s := range all {
		tries[s.handle()] = s.adds
		for _, address := range s.result.addresses() {
			if !slices.Contains(held[s.handle()], address) {
				t.Errorf("%v uses %s, which its handle does not hold: %v", s, address, held[s.handle()])
			}
			if other, taken := owner[address]; taken {
				t.Errorf("%v and %s both have %s", s, other, address)
			}
			owner[address] = s.String()
		}
	}
	for handle, addresses := range held {
		if len(addresses) > 2*tries[handle] {
			t.Errorf("handle %s holds %v after %d ADDs", handle, addresses, tries[handle])
		}
		if counted[handle] != len(addresses) {
			t.Errorf("handle %s counts %d, the blocks hold %v of it", handle, counted[handle], addresses)
		}
	}
	for handle := range counted {
		if len(held[handle]) == 0 {
			t.Errorf("handle %s holds nothing", handle)
		}
	}
	b.host.auditShow(t, held)
}

// auditShow: the operator sees the same.
func (h *host) auditShow(t *testing.T, held map[string][]string) {
	t.Helper()
	total := 0
	for handle, addresses := range held {
		total += len(addresses)
		var shown struct {
			Handle string `json:"handle"`
		}
		h.show(t, &shown, "--ip="+addresses[0])
		if shown.Handle != handle {
			t.Errorf("calico-ipam show --ip=%s tells handle %q, want %q", addresses[0], shown.Handle, handle)
		}
	}
	var usage usage
	h.show(t, &usage)
	if used := usage.inUse(); used != total {
		t.Errorf("calico-ipam show tells %d addresses in use, want %d", used, total)
	}
}

// show runs calico-ipam show.
func (h *host) show(t *testing.T, into any, arguments ...string) {
	t.Helper()
	file := h.file("/run/show.conf")
	document, err := json.Marshal(h.conf)
	if err == nil {
		err = os.WriteFile(file, document, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := h.command("calico-ipam", append([]string{"show", "-o", "json", "--config=/run/show.conf"}, arguments...)...)
	var out []byte
	h.network.Do(t, func() { out, err = cmd.Output() })
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("calico-ipam show %v: %v\n%s", arguments, err, out)
	}
}

func (b *book) auditNotes(t *testing.T, all []survivor) {
	t.Helper()
	var want []string
	for _, s := range all {
		if !slices.Contains(want, s.handle()) {
			want = append(want, s.handle())
		}
	}
	same(t, "attachment notes", b.host.notes(t), want)
}

// notes are the handles that the attachment notes tell.
func (h *host) notes(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(h.file("/var/lib/calico/cni"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var notes []string
	for _, entry := range entries {
		if len(entry.Name()) != 64 {
			continue
		}
		content, err := os.ReadFile(filepath.Join(h.file("/var/lib/calico/cni"), entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		notes = append(notes, string(content))
	}
	return notes
}

// auditWork: every survivor passes CHECK and reaches the host.
func (b *book) auditWork(t *testing.T, all []survivor) {
	t.Helper()
	var group sync.WaitGroup
	for _, s := range all {
		group.Go(func() {
			if o, err := b.host.execute(t, s.checkCall(s.ifName, b.host.conf)); err != nil || o.failure.Code != 0 {
				t.Errorf("CHECK of %v %v %v", s, o, err)
			}
		})
		for _, address := range s.result.addresses() {
			group.Go(func() {
				if err := s.reachesHost(t, address); err != nil {
					t.Errorf("%v: %v", s, err)
				}
			})
		}
	}
	group.Wait()
}

// checkCall is a CHECK with what ADD returned.
func (c *container) checkCall(ifName string, conf config) call {
	return c.call("CHECK", ifName, conf.with("prevResult", json.RawMessage(c.attachments[ifName].added.stdout)))
}

const (
	echoAgain = 200 * time.Millisecond
	echoTries = 25
)

// reachesHost sends a packet from an address of the pod until the host echoes
// it: the first ones may be lost while the link's carrier comes up.
func (s survivor) reachesHost(t *testing.T, address string) error {
	t.Helper()
	to := hostV4
	if netip.MustParseAddr(address).Is6() {
		to = hostV6
	}
	var socket *net.UDPConn
	var err error
	s.sandbox.network.Do(t, func() {
		socket, err = net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)}, &net.UDPAddr{IP: net.ParseIP(to), Port: echoPort})
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	for range echoTries {
		var packet [64]byte
		_, sendErr := socket.Write([]byte(s.String()))
		if err := socket.SetReadDeadline(time.Now().Add(echoAgain)); err != nil {
			return err
		}
		n, receiveErr := socket.Read(packet[:])
		if sendErr == nil && receiveErr == nil && strings.HasPrefix(s.String(), string(packet[:n])) {
			return nil
		}
		err = fmt.Errorf("%w %w", sendErr, receiveErr)
	}
	return fmt.Errorf("no echo from %s to %s: %v", to, address, err)
}

// destroyed is how long the destruction of namespaces may take.
const destroyed = 5 * time.Second

// nothingLeft demands that no container has left a trace.
func (h *host) nothingLeft(t *testing.T) {
	t.Helper()
	// The kernel takes its time to destroy a namespace, and what ends in it.
	for end := time.Now().Add(destroyed); len(h.interfaces(t)) > 0 && time.Now().Before(end); {
		time.Sleep(destroyed / 100)
	}
	same(t, "interfaces", h.interfaces(t), nil)
	same(t, "routes", h.routes(t), nil)
	same(t, "attachment notes", h.notes(t), nil)
	same(t, "nftables tables", h.tables(t), nil)
	o := h.objects(t)
	for handle, addresses := range o.allocated(t) {
		t.Errorf("handle %s still holds %v", handle, addresses)
	}
	for handle := range o.handles(t) {
		t.Errorf("handle %s is left", handle)
	}
	for name, id := range o.records(t) {
		t.Errorf("the record of interface %s, container %s, is left", name, id)
	}
}
