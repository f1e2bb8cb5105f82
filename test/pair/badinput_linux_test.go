package pair

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"calico-cni/pkg/cnierr"
)

// refusal is an ADD that must be refused before anything is touched.
type refusal struct {
	name  string
	code  cnierr.Code
	words []string
	// change makes the bad call of a good one.
	change func(t *testing.T, c call, conf config) call
}

func stdin(text string) func(*testing.T, call, config) call {
	return func(_ *testing.T, c call, _ config) call {
		c.stdin = text
		return c
	}
}

func setting(path string, value any) func(*testing.T, call, config) call {
	return func(t *testing.T, c call, conf config) call {
		c.stdin = conf.with(path, value).json(t)
		return c
	}
}

func missing(path string) func(*testing.T, call, config) call {
	return func(t *testing.T, c call, conf config) call {
		c.stdin = conf.without(path).json(t)
		return c
	}
}

func env(pairs ...string) func(*testing.T, call, config) call {
	return func(_ *testing.T, c call, _ config) call { return c.with(pairs...) }
}

var refusals = []refusal{
	{"not JSON", cnierr.Undecodable, []string{"JSON"}, stdin(`{"name": "net",`)},
	{"empty", cnierr.Undecodable, []string{"empty"}, stdin("")},
	{"text behind the object", cnierr.Undecodable, []string{"JSON"}, stdin(`{} {}`)},
	{"a list", cnierr.InvalidConfiguration, []string{"object"}, stdin(`[]`)},
	{"mtu is a string", cnierr.InvalidConfiguration, []string{"mtu"}, setting("mtu", "1500")},
	{"mtu is not whole", cnierr.InvalidConfiguration, []string{"mtu"}, setting("mtu", 1500.5)},
	{"nodename is a number", cnierr.InvalidConfiguration, []string{"nodename"}, setting("nodename", 1)},
	{"ipam is a list", cnierr.InvalidConfiguration, []string{"ipam"}, setting("ipam", []any{})},
	{"assign_ipv4 is a boolean", cnierr.InvalidConfiguration, []string{"ipam.assign_ipv4"}, setting("ipam.assign_ipv4", true)},
	{"Network/13 readiness_gates is a string", cnierr.InvalidConfiguration, []string{"readiness_gates"}, setting("readiness_gates", "http://127.0.0.1/")},
	{"Network/13 readiness gate is no URL", cnierr.InvalidConfiguration, []string{"readiness_gates[0]"}, setting("readiness_gates", []any{"://"})},
	{"a bad node name", cnierr.InvalidConfiguration, []string{"nodename", "a b"}, setting("nodename", "a b")},
	{"placeholder as a value", cnierr.InvalidConfiguration, []string{"nodename"}, setting("nodename", "__KUBERNETES_NODE_NAME__")},
	{"placeholder inside a value", cnierr.InvalidConfiguration, []string{"log_file_path"}, setting("log_file_path", "/var/log/__X__.log")},
	{"placeholder in angle brackets", cnierr.InvalidConfiguration, []string{"ipam_lock_file"}, setting("ipam_lock_file", "<path>")},
	{"Network/4 name with a blank", cnierr.InvalidConfiguration, []string{"name", "a b"}, setting("name", "a b")},
	{"Network/4 name missing", cnierr.InvalidConfiguration, []string{"name"}, missing("name")},
	{"ipam missing", cnierr.InvalidConfiguration, []string{"ipam"}, missing("ipam")},
	{"ipam type missing", cnierr.InvalidConfiguration, []string{"ipam.type"}, missing("ipam.type")},
	{"IPAM plugin not installed", cnierr.InvalidConfiguration, []string{"absent-ipam"}, setting("ipam.type", "absent-ipam")},
	{"Network/3 cniVersion 1.2.0", cnierr.UnsupportedVersion, []string{"1.2.0"}, setting("cniVersion", "1.2.0")},
	{"Network/3 cniVersion x", cnierr.UnsupportedVersion, []string{"x"}, setting("cniVersion", "x")},
	{"Network/11 unknown device_type", cnierr.UnsupportedField, []string{"device_type", "ipvlan"}, setting("device_type", "ipvlan")},
	{"Network/55 unknown data plane", cnierr.UnsupportedField, []string{"dataplane_options.type", "other"}, setting("dataplane_options.type", "other")},
	{"Network/55 grpc without socket", cnierr.InvalidConfiguration, []string{"dataplane_options.socket"}, setting("dataplane_options.type", "grpc")},
	{"unknown datastore", cnierr.InvalidConfiguration, []string{"datastore_type", "consul"}, setting("datastore_type", "consul")},
	{"CNI_ARGS malformed", cnierr.InvalidEnvironment, []string{"CNI_ARGS"}, env("CNI_ARGS=K8S_POD_NAME")},
	{"container id with a slash", cnierr.InvalidEnvironment, []string{"CNI_CONTAINERID", "a/b"}, env("CNI_CONTAINERID=a/b")},
	{"interface name of 16 characters", cnierr.InvalidEnvironment, []string{"CNI_IFNAME", "eth0123456789012"}, env("CNI_IFNAME=eth0123456789012")},
	{"several variables missing", cnierr.InvalidEnvironment, []string{"CNI_NETNS", "CNI_IFNAME"}, env("CNI_NETNS=", "CNI_IFNAME=")},
	{"Linux/32 netns missing", cnierr.InvalidEnvironment, []string{"CNI_NETNS", "/run/netns/absent"}, env("CNI_NETNS=/run/netns/absent")},
	{"netns is a plain file", cnierr.InvalidEnvironment, []string{"CNI_NETNS"}, func(t *testing.T, c call, _ config) call {
		path := filepath.Join(t.TempDir(), "netns")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return c.with("CNI_NETNS=" + path)
	}},
	{"Linux/45 our own netns", cnierr.OwnNamespace, []string{"/proc/self/ns/net"}, env("CNI_NETNS=/proc/self/ns/net")},
	{"unknown verb", cnierr.InvalidEnvironment, []string{"CNI_COMMAND", "JUMP"}, env("CNI_COMMAND=JUMP")},
}

// TestRefusals also proves that every refusal is one error object with the
// configuration's version: each call is checked for that.
func TestRefusals(t *testing.T) {
	t.Parallel()
	t.Run("Network/68 every error is one JSON object", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		conf := newConfig()
		first, p := newPod(t, "first", ""), newPod(t, "container", "")
		h.add(t, first, conf)
		for _, r := range refusals {
			t.Run(r.name, func(t *testing.T) {
				before, inPod := h.state(t), kernelState(t, "pod", p.links)
				h.run(t, r.change(t, p.verb(t, "ADD", conf), conf)).fails(t, r.code, r.words...)
				h.unchanged(t, before)
				if after := kernelState(t, "pod", p.links); difference(inPod, after) != "" {
					t.Errorf("the pod has changed:\n%s", difference(inPod, after))
				}
			})
		}
	})
}

// TestUnknownKeys: they are accepted, and a near miss is warned about.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	h, p := newHost(t), newPod(t, "container", "")
	conf := newConfig().with("nodenmae", "node-2").with("x-vendor", map[string]any{"a": 1})
	o := h.run(t, p.verb(t, "ADD", conf)).succeeds(t)
	if !strings.Contains(o.stderr, "nodenmae") || !strings.Contains(o.stderr, "did you mean") {
		t.Errorf("nothing on stderr warns about nodenmae:\n%s", o.stderr)
	}
	if strings.Contains(o.stderr, "x-vendor") {
		t.Errorf("stderr mentions a key that resembles none of ours:\n%s", o.stderr)
	}
	h.del(t, p, conf)
	h.nothingLeft(t)
}

// TestContainerIDLengths: the alias holds at most 255 bytes, a handle's key
// and a note's name have limits of their own.
func TestContainerIDLengths(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1, 300} {
		for _, who := range identities {
			t.Run(fmt.Sprintf("Linux/44 %d characters, %s", length, who.name), func(t *testing.T) {
				t.Parallel()
				id := strings.Repeat("x", length)
				h, p, conf := newHost(t), newPod(t, id, who.args), newConfig()
				added := h.run(t, p.verb(t, "ADD", conf))
				r := added.result(t)
				link := h.linkOf(t, r)
				alias := p.alias()
				if length > 71 {
					alias = "calico-cni/" + network + "/sha256-" + digest(id) + "/eth0"
				}
				if link.Attrs().Alias != alias {
					t.Errorf("the alias is %q, want %q", link.Attrs().Alias, alias)
				}
				h.reaches(t, r.addresses()[0])
				h.run(t, p.check(t, conf, added)).succeeds(t)
				h.del(t, p, conf)
				h.nothingLeft(t)
			})
		}
	}
}

func TestInterfaceNameTaken(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("Linux/29 "+who.name, func(t *testing.T) {
			t.Parallel()
			h, p, conf := newHost(t), newPod(t, "container", who.args), newConfig()
			first := newPod(t, "first", "")
			h.add(t, first, conf)
			addVeth(t, p.links, "eth0", "other0")
			inPod := kernelState(t, "pod", p.links)
			held := h.objects(t).allocated(t)
			kernel := kernelState(t, "host", h.links)
			h.run(t, p.verb(t, "ADD", conf)).fails(t, cnierr.NameTaken, "eth0")
			if after := kernelState(t, "pod", p.links); difference(inPod, after) != "" {
				t.Errorf("the pod has changed:\n%s", difference(inPod, after))
			}
			if after := kernelState(t, "host", h.links); difference(kernel, after) != "" {
				t.Errorf("the host has changed:\n%s", difference(kernel, after))
			}
			if after := h.objects(t).allocated(t); len(after) != len(held) {
				t.Errorf("allocated are %v, before %v", after, held)
			}
		})
	}
}

// addVeth makes a pair of interfaces that has nothing to do with us.
func addVeth(t *testing.T, handle *netlink.Handle, name, peer string) netlink.Link {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := handle.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer}); err != nil {
		t.Fatalf("making %s: %v", name, err)
	}
	setUp(t, handle, name)
	link, err := handle.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link
}
