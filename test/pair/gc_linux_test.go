package pair

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/test/pair/gate"
)

// attachments is GC's input: pairs of container id and interface.
func attachments(pairs ...string) []any {
	list := []any{}
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, map[string]any{"containerID": pairs[i], "ifname": pairs[i+1]})
	}
	return list
}

const (
	validKey  = "cni.dev/valid-attachments"
	legacyKey = "cni.dev/attachments"
)

// gcKey sets a key that holds dots.
func (c config) gcKey(key string, value any) config {
	changed := c.clone()
	changed[key] = value
	return changed
}

// neighbours is a host with pods a and b of one network and c of another.
type neighbours struct {
	*host
	a, b, c *pod
	conf    config
	other   config
}

func newNeighbours(t *testing.T) *neighbours {
	t.Helper()
	n := &neighbours{host: newHost(t), conf: ipv4Only()}
	n.other = n.conf.with("name", "other")
	n.a, n.b, n.c = newPod(t, "aaaa", ""), newPod(t, "bbbb", ""), newPod(t, "cccc", "")
	n.add(t, n.a, n.conf)
	n.add(t, n.b, n.conf)
	n.add(t, n.c, n.other)
	return n
}

// has demands which containers are on the host, in interfaces and allocations.
func (n *neighbours) has(t *testing.T, containers ...string) {
	t.Helper()
	linked, held := map[string]bool{}, map[string]bool{}
	for _, link := range n.list(t) {
		if parts := strings.Split(link.Attrs().Alias, "/"); len(parts) == 4 {
			linked[parts[2]] = true
		}
	}
	for handle := range n.objects(t).allocated(t) {
		held[handle[strings.LastIndex(handle, ".")+1:]] = true
	}
	want := map[string]bool{}
	for _, container := range containers {
		want[container] = true
	}
	if fmt.Sprint(linked) != fmt.Sprint(want) || fmt.Sprint(held) != fmt.Sprint(want) {
		t.Errorf("interfaces are of %v, addresses of %v; want %v", linked, held, want)
	}
}

func TestGCInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		input func(config) config
		left  []string
	}{
		{"keys absent", func(c config) config { return c }, []string{"aaaa", "bbbb", "cccc"}},
		{"null", func(c config) config { return c.gcKey(validKey, nil) }, []string{"cccc"}},
		{"empty", func(c config) config { return c.gcKey(validKey, attachments()) }, []string{"cccc"}},
		{"the other spelling, null", func(c config) config { return c.gcKey(legacyKey, nil) }, []string{"cccc"}},
		{"the other spelling", func(c config) config { return c.gcKey(legacyKey, attachments("aaaa", "eth0")) }, []string{"aaaa", "cccc"}},
		{"partial", func(c config) config { return c.gcKey(validKey, attachments("bbbb", "eth0")) }, []string{"bbbb", "cccc"}},
		{"both spellings with different lists", func(c config) config {
			return c.gcKey(validKey, attachments("aaaa", "eth0")).gcKey(legacyKey, attachments("bbbb", "eth0"))
		}, []string{"aaaa", "bbbb", "cccc"}},
		{"disableGC", func(c config) config { return c.gcKey(validKey, nil).gcKey("disableGC", true) }, []string{"aaaa", "bbbb", "cccc"}},
	} {
		t.Run("Network/64 Linux/49 "+c.name, func(t *testing.T) {
			t.Parallel()
			n := newNeighbours(t)
			n.run(t, hostVerb(t, "GC", c.input(n.conf))).succeeds(t)
			n.has(t, c.left...)
		})
	}
	for name, value := range map[string]any{
		"no list": "aaaa", "entry without containerID": []any{map[string]any{"ifname": "eth0"}}, "entry is no object": []any{"aaaa"},
	} {
		t.Run("Network/64 malformed, "+name, func(t *testing.T) {
			t.Parallel()
			n := newNeighbours(t)
			before := n.state(t)
			n.run(t, hostVerb(t, "GC", n.conf.gcKey(validKey, value))).fails(t, cnierr.InvalidConfiguration, validKey)
			n.unchanged(t, before)
		})
	}
}

// TestGCLeavesOthers: links without alias, and a container one of whose two
// interfaces is still valid.
func TestGCLeavesOthers(t *testing.T) {
	t.Parallel()
	t.Run("Linux/49 second interface and links without alias", func(t *testing.T) {
		t.Parallel()
		h, conf := newHost(t), ipv4Only()
		eth0 := newPod(t, "container", identities[1].args)
		eth1 := eth0.second("eth1")
		first := h.add(t, eth0, conf)
		second := h.add(t, eth1, conf)
		addVeth(t, h.links, "cali0foreign", "cali1foreign")
		h.run(t, hostVerb(t, "GC", conf.gcKey(validKey, attachments("container", "eth0")))).succeeds(t)
		if h.linkByAlias(t, eth1.alias()) != nil {
			t.Error("the stale interface eth1 is still there")
		}
		if h.linkByAlias(t, eth0.alias()) == nil {
			t.Error("the valid interface eth0 is gone")
		}
		if _, err := h.links.LinkByName("cali0foreign"); err != nil {
			t.Errorf("a foreign interface is gone: %v", err)
		}
		h.holds(t, eth0, append(first.addresses(), second.addresses()...)...)
	})
}

// TestGCGoesOn: one link cannot be deleted.
func TestGCGoesOn(t *testing.T) {
	t.Parallel()
	t.Run("Network/65 one undeletable link", func(t *testing.T) {
		t.Parallel()
		n := newNeighbours(t)
		stuck := n.linkByAlias(t, n.a.alias())
		gc := hostVerb(t, "GC", n.conf.gcKey(validKey, nil))
		gc.decide = func(c gate.Call) unix.Errno {
			if c.Type() == unix.RTM_DELLINK && c.Index() == stuck.Attrs().Index {
				return unix.EBUSY
			}
			return 0
		}
		o := n.run(t, gc)
		if o.status == 0 || !strings.Contains(o.failure.Msg, stuck.Attrs().Name) {
			t.Errorf("GC ends with status %d: %s; want an error that names %s", o.status, o.failure.Msg, stuck.Attrs().Name)
		}
		if n.linkByAlias(t, n.b.alias()) != nil {
			t.Error("the other stale interface is still there")
		}
		n.holds(t, n.b)
		n.run(t, hostVerb(t, "GC", n.conf.gcKey(validKey, nil))).succeeds(t)
		n.has(t, "cccc")
	})
}

// TestGCNeedsTheNodeName: a guessed name could be another node's.
func TestGCNeedsTheNodeName(t *testing.T) {
	t.Parallel()
	t.Run("Network/6 GC", func(t *testing.T) {
		t.Parallel()
		n := newNeighbours(t)
		conf := n.conf.gcKey(validKey, nil).without("nodename").with("nodename_file_optional", false)
		before := n.state(t)
		n.run(t, hostVerb(t, "GC", conf)).fails(t, cnierr.TryAgainLater, "/var/lib/calico/nodename")
		n.unchanged(t, before)
		n.run(t, hostVerb(t, "GC", conf.with("nodename", "node-1"))).succeeds(t)
		n.has(t, "cccc")
	})
}
