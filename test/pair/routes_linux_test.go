package pair

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"calico-cni/test/etcdtest"
)

// nodeObject is a node with the addresses by which the others reach it.
func nodeObject(name, ipv4, ipv6 string) objects {
	return objects{resourceRoot + "nodes/" + name: fmt.Sprintf(
		`{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":%q},"spec":{"bgp":{"ipv4Address":%q,"ipv6Address":%q}}}`, name, ipv4, ipv6)}
}

// routes runs the command on the host with the datastore of a configuration.
func (h *host) routes(t *testing.T, c config, args ...string) outcome {
	t.Helper()
	const file = "/run/routes.conf"
	h.write(t, file, c.json(t))
	return h.run(t, call{plugin: "calico-ipam", args: append([]string{"routes", "--config=" + file}, args...)})
}

// shell runs commands in the host's network.
func (h *host) shell(t *testing.T, script string) string {
	t.Helper()
	var out []byte
	var err error
	h.network.Do(t, func() { out, err = exec.Command("sh", "-euc", script).CombinedOutput() })
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// uplink gives the host an interface to the other nodes.
func (h *host) uplink(t *testing.T, addresses ...string) {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "switch"}
	if err := h.links.LinkAdd(link); err != nil {
		t.Fatalf("adding an uplink: %v", err)
	}
	for _, text := range addresses {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.links.AddrAdd(link, address); err != nil {
			t.Fatalf("adding %s to the uplink: %v", text, err)
		}
	}
	setUp(t, h.links, "switch")
	setUp(t, h.links, "uplink")
}

// TestRoutesEtcd: the kernel takes the routes as they are printed, twice too,
// and can tell them from others.
func TestRoutesEtcd(t *testing.T) {
	t.Parallel()
	nodes := cluster(pool4, pool6, nodeObject("node-1", "198.51.100.11/24", "2001:db8:1::11/64"), nodeObject("node-2", "198.51.100.12/24", "2001:db8:1::12/64"))
	h, conf := newEtcdHost(t, etcdtest.Options{}, nodes)
	h.uplink(t, "198.51.100.11/24", "2001:db8:1::11/64")
	h.add(t, newPod(t, "one", ""), conf)
	if o := h.routes(t, conf); o.status != 0 || o.stdout+o.stderr != "" {
		t.Errorf("without pods elsewhere: exit %d, %s%s", o.status, o.stdout, o.stderr)
	}
	h.add(t, newPod(t, "two", ""), conf.with("nodename", "node-2"))
	var want []string
	for path := range h.objects(t) {
		if family, cidr, ok := strings.Cut(strings.TrimPrefix(path, "/calico/ipam/v2/host/node-2/"), "/block/"); ok && strings.HasPrefix(path, "/calico/ipam/v2/host/node-2/") {
			via := map[string]string{"ipv4": "198.51.100.12", "ipv6": "2001:db8:1::12"}[family]
			want = append(want, strings.Replace(cidr, "-", "/", 1)+" via "+via)
		}
	}
	o := h.routes(t, conf, "--protocol=80")
	if lines := strings.Fields(o.stdout); o.status != 0 || o.stderr != "" || len(want) != 2 || len(lines) != 2*len(strings.Fields("ip route replace C via V proto 80")) {
		t.Fatalf("exit %d, %s\n%swant %v", o.status, o.stderr, o.stdout, want)
	}
	h.shell(t, o.stdout+o.stdout)
	shown := h.shell(t, "ip route show proto 80; ip -6 route show proto 80")
	for _, route := range want {
		if !strings.Contains(o.stdout, "ip route replace "+route+" proto 80\n") || !strings.Contains(shown, route+" dev uplink") {
			t.Errorf("no route %s is in\n%sor in\n%s", route, o.stdout, shown)
		}
	}
	if lines := strings.Count(shown, "\n"); lines != 2 {
		t.Errorf("%d routes:\n%s", lines, shown)
	}
	h.etcd.Put(t, resourceRoot+"nodes/node-2", strings.Replace(nodes[resourceRoot+"nodes/node-2"], "2001:db8:1::12/64", "", 1))
	if o := h.routes(t, conf); o.status != 1 || strings.Count(o.stdout, "\n") != 1 || !strings.Contains(o.stderr, "on node node-2: the node has no IPv6 address") {
		t.Errorf("a node without IPv6 address: exit %d, %s%s", o.status, o.stdout, o.stderr)
	}
}

// TestRoutesEmbedded: the only node needs none, though it has no address.
func TestRoutesEmbedded(t *testing.T) {
	t.Parallel()
	h, conf := newHost(t), newConfig()
	h.add(t, newPod(t, "one", ""), conf)
	for _, args := range [][]string{nil, {"--all"}} {
		want := ""
		if args != nil {
			want = "# on node \"node-1\"\n"
		}
		if o := h.routes(t, conf, args...); o.status != 0 || o.stdout != want || o.stderr != "" {
			t.Errorf("%v: exit %d, %s%s", args, o.status, o.stdout, o.stderr)
		}
	}
}
