package storm

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"calico-cni/test/etcdtest"
	"calico-cni/test/netns"
)

// members is a cluster of etcd servers, each in a network of its own, on a
// bridge of the host.
type members struct {
	servers []*etcdtest.Server
	sites   []etcdtest.Site
}

const memberCount = 3

// onMembers gives the host a datastore of three members.
func (h *host) onMembers(t *testing.T) *members {
	t.Helper()
	m := &members{}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "members"}}
	if err := h.links.LinkAdd(bridge); err != nil {
		t.Fatal(err)
	}
	h.address(t, h.links, "members", "198.51.100.254/24")
	var endpoints []string
	for i := range memberCount {
		site := etcdtest.Site{Network: netns.New(t), Address: fmt.Sprintf("198.51.100.%d", i+1)}
		h.connect(t, bridge, fmt.Sprintf("member%d", i), site)
		m.sites = append(m.sites, site)
		endpoints = append(endpoints, "http://"+site.Address+":2379")
	}
	m.servers = etcdtest.StartClusterAt(t, m.sites)
	h.etcd = m.servers[0]
	h.fill(t)
	h.conf["etcd_endpoints"] = strings.Join(endpoints, ",")
	return m
}

// connect puts a site on the bridge.
func (h *host) connect(t *testing.T, bridge netlink.Link, name string, site etcdtest.Site) {
	t.Helper()
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(site.Network.Handle()),
	}
	if err := h.links.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	if err := h.links.LinkSetUp(pair); err != nil {
		t.Fatal(err)
	}
	inside, err := netlink.NewHandleAt(site.Network.Handle())
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	h.address(t, inside, "eth0", site.Address+"/24")
	lo, err := inside.LinkByName("lo")
	if err == nil {
		err = inside.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// address gives an interface an address and sets it up.
func (h *host) address(t *testing.T, links *netlink.Handle, name, address string) {
	t.Helper()
	link, err := links.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := links.AddrAdd(link, parsed); err != nil {
		t.Fatal(err)
	}
	if err := links.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
}

// cutOff has a member's firewall drop everything.
func (m *members) cutOff(t *testing.T, member int) {
	t.Helper()
	m.nft(t, member, `add table inet cut
		add chain inet cut in { type filter hook input priority 0; policy drop; }
		add chain inet cut out { type filter hook output priority 0; policy drop; }`)
}

// bringBack removes that rule.
func (m *members) bringBack(t *testing.T, member int) {
	t.Helper()
	m.nft(t, member, "delete table inet cut")
}

func (m *members) nft(t *testing.T, member int, commands string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	m.sites[member].Network.Do(t, func() {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("nft: %v\n%s", err, out)
		}
	})
}
