package pair

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
)

// hostLocal is a network whose addresses come from upstream's host-local.
func hostLocal(changes map[string]any) config {
	ipam := map[string]any{"type": "host-local", "ranges": []any{
		[]any{map[string]any{"subnet": "10.88.0.0/24"}}, []any{map[string]any{"subnet": "fd00:88::/112"}},
	}}
	for key, value := range changes {
		ipam[key] = value
	}
	return newConfig().with("ipam", ipam)
}

func TestHostLocal(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("host-local, "+who.name, func(t *testing.T) {
			t.Parallel()
			h, p, conf := newHost(t), newPod(t, "container", who.args), hostLocal(nil)
			added := h.run(t, p.verb(t, "ADD", conf))
			r := added.result(t)
			if !slices.Equal(r.addresses(), []string{"10.88.0.2", "fd00:88::2"}) {
				t.Errorf("the addresses are %v", r.addresses())
			}
			for _, ip := range r.IPs {
				if ip.Gateway != "" {
					t.Errorf("the result has gateway %s", ip.Gateway)
				}
			}
			for _, address := range r.addresses() {
				h.reaches(t, address)
			}
			h.run(t, p.check(t, conf, added)).succeeds(t)
			h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
			h.run(t, hostVerb(t, "GC", conf.gcKey(validKey, attachments(p.container, p.ifName)))).succeeds(t)
			h.del(t, p, conf)
			if left := h.hostLocalFiles(t); len(left) != 0 {
				t.Errorf("host-local still holds %v", left)
			}
			h.nothingLeft(t)
		})
	}
	t.Run("Network/66 CHECK error of host-local is returned", func(t *testing.T) {
		t.Parallel()
		h, p, conf := newHost(t), newPod(t, "container", ""), hostLocal(nil)
		added := h.run(t, p.verb(t, "ADD", conf)).succeeds(t)
		for _, path := range h.hostLocalFiles(t) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		o := h.run(t, p.check(t, conf, added))
		o.fails(t, o.failure.Code, "host-local")
	})
}

// hostLocalFiles are the files by which host-local remembers addresses.
func (h *host) hostLocalFiles(t *testing.T) []string {
	t.Helper()
	var held []string
	found, err := filepath.Glob(h.file("/var/lib/cni/networks/" + network + "/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if name := filepath.Base(path); name != "lock" && !strings.HasPrefix(name, "last_reserved_ip") {
			held = append(held, path)
		}
	}
	return held
}

func TestHostLocalRoutes(t *testing.T) {
	t.Parallel()
	custom := []any{
		map[string]any{"dst": "10.0.0.0/8", "gw": "10.88.0.77"}, map[string]any{"dst": "fd00:1::/64"},
	}
	ours := []string{"10.0.0.0/8", "fd00:1::/64"}
	defaults := []string{"0.0.0.0/0", "::/0"}
	for _, c := range []struct {
		name     string
		ipam     map[string]any
		defaults bool
		want     []string
	}{
		{"no routes", nil, false, defaults},
		{"Network/40 Network/41 Linux/24 routes replace the defaults", map[string]any{"routes": custom}, false, ours},
		{"Network/40 Linux/25 include_default_routes", map[string]any{"routes": custom}, true, append(defaults, ours...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, p := newHost(t), newPod(t, "container", identities[1].args)
			conf := hostLocal(c.ipam).with("include_default_routes", c.defaults)
			added := h.run(t, p.verb(t, "ADD", conf)).succeeds(t)
			have := destinations(t, p)
			for _, dst := range append(append([]string{}, ours...), defaults...) {
				if slices.Contains(have, dst) != slices.Contains(c.want, dst) {
					t.Errorf("route %s present: %v; the pod has %v, want %v", dst, slices.Contains(have, dst), have, c.want)
				}
			}
			h.run(t, p.check(t, conf, added)).succeeds(t)
		})
	}
	for name, dst := range map[string]any{"not a CIDR": "10.0.0.0", "not a string": 7} {
		t.Run("Network/41 bad dst, "+name, func(t *testing.T) {
			t.Parallel()
			h, p := newHost(t), newPod(t, "container", identities[1].args)
			before := h.state(t)
			conf := hostLocal(map[string]any{"routes": []any{map[string]any{"dst": dst}}})
			h.run(t, p.verb(t, "ADD", conf)).fails(t, cnierr.InvalidConfiguration, "ipam.routes[0].dst")
			h.unchanged(t, before)
		})
	}
}

// destinations lists where the pod's routes lead.
func destinations(t *testing.T, p *pod) []string {
	t.Helper()
	var found []string
	for _, route := range routes(t, p.links) {
		dst, _, _ := strings.Cut(route, " ")
		found = append(found, dst)
	}
	return found
}

func TestStatic(t *testing.T) {
	t.Parallel()
	h, p := newHost(t), newPod(t, "container", "")
	// static's CHECK wants its address in the result as it stands here, with
	// its length and gateway; pods have /32 and no gateway.
	conf := newConfig().with("ipam", map[string]any{"type": "static", "addresses": []any{
		map[string]any{"address": "10.88.0.9/32"},
	}})
	added := h.run(t, p.verb(t, "ADD", conf))
	if r := added.result(t); !slices.Equal(r.addresses(), []string{"10.88.0.9"}) || r.IPs[0].Address != "10.88.0.9/32" {
		t.Errorf("the result is %+v", r)
	}
	h.reaches(t, "10.88.0.9")
	h.run(t, p.check(t, conf, added)).succeeds(t)
	h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
	h.run(t, hostVerb(t, "GC", conf)).succeeds(t)
	h.del(t, p, conf)
	h.nothingLeft(t)
}

// TestBehindLoopback: we are not the first plugin of the chain.
func TestBehindLoopback(t *testing.T) {
	t.Parallel()
	t.Run("Network/67 prevResult of loopback", func(t *testing.T) {
		t.Parallel()
		h, p := newHost(t), newPod(t, "container", "")
		loopback := p.verb(t, "ADD", config{"cniVersion": "1.1.0", "name": network, "type": "loopback"}).with("CNI_IFNAME=lo")
		loopback.plugin = filepath.Join(executables(t).tools, "loopback")
		before := h.run(t, loopback).succeeds(t)

		conf := newConfig().with("prevResult", json.RawMessage(before.stdout))
		added := h.run(t, p.verb(t, "ADD", conf))
		r := added.result(t)
		if len(r.Interfaces) != 3 || r.Interfaces[0].Name != "lo" || r.Interfaces[2].Name != "eth0" {
			t.Fatalf("the interfaces are %+v", r.Interfaces)
		}
		for _, ip := range r.IPs {
			want := 2
			if strings.HasPrefix(ip.Address, "127.") || strings.HasPrefix(ip.Address, "::1/") {
				want = 0
			}
			if ip.Interface == nil || *ip.Interface != want {
				t.Errorf("%s is on interface %v, want %d", ip.Address, ip.Interface, want)
			}
		}
		h.run(t, p.check(t, conf, added)).succeeds(t)
		h.del(t, p, conf)
		h.nothingLeft(t)
	})
}

// TestBeforeTuning: a later plugin changes MAC and MTU, and says so.
func TestBeforeTuning(t *testing.T) {
	t.Parallel()
	t.Run("Linux/47 tuning changed MAC and MTU", func(t *testing.T) {
		t.Parallel()
		h, p, conf := newHost(t), newPod(t, "container", ""), newConfig().with("mtu", 1450)
		added := h.run(t, p.verb(t, "ADD", conf)).succeeds(t)
		tuning := p.verb(t, "ADD", config{
			"cniVersion": "1.1.0", "name": network, "type": "tuning", "mac": "02:aa:00:00:00:07", "mtu": 1280,
			"dataDir": "/var/lib/tuning", "prevResult": json.RawMessage(added.stdout),
		})
		tuning.plugin = filepath.Join(executables(t).tools, "tuning")
		tuned := h.run(t, tuning).succeeds(t)
		// tuning 1.10 states the new MAC, but still the old MTU.
		tuned.stdout = strings.Replace(tuned.stdout, "1450", "1280", 1)
		h.run(t, p.check(t, conf, tuned)).succeeds(t)
	})
}
