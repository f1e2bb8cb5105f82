package pair

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"

	"calico-cni/pkg/cnierr"
)

var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

func TestExecutableName(t *testing.T) {
	t.Parallel()
	t.Run("Network/1 the name selects the role", func(t *testing.T) {
		h, where := newHost(t), executables(t)
		for _, plugin := range []string{"calico", "calico-ipam"} {
			about := h.run(t, call{plugin: plugin})
			if about.status != 0 || !strings.Contains(about.stderr, plugin) {
				t.Errorf("%s without CNI_COMMAND: status %d, stderr %q", plugin, about.status, about.stderr)
			}
		}
		renamed := filepath.Join(t.TempDir(), "something-else")
		if err := os.Symlink(filepath.Join(where.pair, "calico"), renamed); err != nil {
			t.Fatal(err)
		}
		if o := h.run(t, call{plugin: renamed}); o.status == 0 {
			t.Errorf("an executable of another name succeeds: %s%s", o.stdout, o.stderr)
		}
	})
}

func TestVersion(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, plugin := range []string{"calico", "calico-ipam"} {
		t.Run("Network/2 "+plugin, func(t *testing.T) {
			o := h.run(t, call{plugin: plugin, args: []string{"-v"}})
			if o.status != 0 || strings.Count(o.stdout, "\n") != 1 || len(o.stdout) < 2 {
				t.Errorf("-v: status %d, prints %q", o.status, o.stdout)
			}
			for _, stdin := range []string{"", `{"cniVersion":"1.0.0"}`} {
				var answer struct {
					CNIVersion        string   `json:"cniVersion"`
					SupportedVersions []string `json:"supportedVersions"`
				}
				onlyObject(t, h.run(t, call{plugin: plugin, verb: "VERSION", stdin: stdin}).succeeds(t).stdout, &answer)
				if !slices.Equal(answer.SupportedVersions, versions) {
					t.Errorf("supported versions are %v, want %v", answer.SupportedVersions, versions)
				}
			}
		})
	}
}

// TestEveryVersion adds under one version and looks and deletes under all
// others, with the result in that version's form.
func TestEveryVersion(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run("Network/3 Network/39 Network/69 ADD under "+version, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			conf := newConfig().with("mtu", 1450)
			for _, later := range versions {
				p := newPod(t, "container-"+strings.ReplaceAll(later, ".", "-"), "")
				added := h.run(t, p.verb(t, "ADD", conf.with("cniVersion", version))).succeeds(t)
				checkForm(t, added.stdout, version)
				if later >= "0.4.0" {
					h.run(t, p.check(t, conf.with("cniVersion", later), inVersion(t, added, later))).succeeds(t)
				} else {
					h.run(t, p.check(t, conf.with("cniVersion", later), added)).fails(t, cnierr.UnsupportedVersion, later)
				}
				h.del(t, p, conf.with("cniVersion", later))
				h.nothingLeft(t)
			}
		})
	}
}

// checkForm compares a result with the form of its version, section 7 of the
// network plugin's contract.
func checkForm(t *testing.T, text, version string) {
	t.Helper()
	var r map[string]any
	onlyObject(t, text, &r)
	if r["cniVersion"] != version {
		t.Errorf("the result says cniVersion %v, want %s", r["cniVersion"], version)
	}
	_, hasDNS := r["dns"]
	if old := version < "1.0.0"; hasDNS != old {
		t.Errorf("%s: dns present %v, want %v", version, hasDNS, old)
	}
	if version < "0.3.0" {
		if r["ip4"] == nil || r["ip6"] == nil || r["interfaces"] != nil {
			t.Errorf("%s: the result is %s", version, text)
		}
		return
	}
	interfaces, ips := r["interfaces"].([]any), r["ips"].([]any)
	if len(interfaces) != 2 || len(ips) != 2 {
		t.Fatalf("%s: the result is %s", version, text)
	}
	for _, ip := range ips {
		_, hasVersion := ip.(map[string]any)["version"]
		if want := version < "1.0.0"; hasVersion != want {
			t.Errorf("%s: an address has a version %v, want %v", version, hasVersion, want)
		}
	}
	_, hasMTU := interfaces[1].(map[string]any)["mtu"]
	if want := version >= "1.0.0"; hasMTU != want {
		t.Errorf("%s: the interface has an mtu %v, want %v", version, hasMTU, want)
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	t.Run("Network/38 two interfaces, no gateways", func(t *testing.T) {
		t.Parallel()
		h, p := newHost(t), newPod(t, "container", "")
		r := h.add(t, p, newConfig())
		if len(r.Interfaces) != 2 || r.Interfaces[0].Sandbox != "" || r.Interfaces[1].Name != "eth0" ||
			r.Interfaces[1].Sandbox != p.network.Path() {
			t.Errorf("the interfaces are %+v", r.Interfaces)
		}
		for _, ip := range r.IPs {
			if ip.Interface == nil || *ip.Interface != 1 || ip.Gateway != "" {
				t.Errorf("the address is %+v, want interface 1 and no gateway", ip)
			}
		}
	})
	t.Run("IPAM/49 routes of calico-ipam", func(t *testing.T) {
		t.Parallel()
		h, p := newHost(t), newPod(t, "container", "")
		add := p.verb(t, "ADD", newConfig())
		add.plugin = "calico-ipam"
		r := h.run(t, add).result(t)
		if len(r.IPs) != 2 || len(r.Routes) != 2 || strings.Contains(r.IPs[0].Address, ":") ||
			r.IPs[0].Address != r.Routes[0].Dst || r.IPs[1].Address != r.Routes[1].Dst ||
			!strings.HasSuffix(r.IPs[0].Address, "/26") || !strings.HasSuffix(r.IPs[1].Address, "/122") {
			t.Errorf("the result is %+v", r)
		}
	})
}

func TestSilentVerbs(t *testing.T) {
	t.Parallel()
	t.Run("Network/53 nothing on success, code 1 under old versions, -t", func(t *testing.T) {
		t.Parallel()
		h, p, conf := newHost(t), newPod(t, "container", ""), newConfig()
		added := h.run(t, p.verb(t, "ADD", conf)).succeeds(t)
		// Every run demands an empty standard output of these.
		h.run(t, p.check(t, conf, added)).succeeds(t)
		h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
		h.run(t, hostVerb(t, "GC", conf)).succeeds(t)
		old := conf.with("cniVersion", "0.3.1")
		h.run(t, p.check(t, old, added)).fails(t, cnierr.UnsupportedVersion, "0.3.1")
		h.run(t, hostVerb(t, "STATUS", conf.with("cniVersion", "1.0.0"))).fails(t, cnierr.UnsupportedVersion, "1.0.0")
		h.run(t, hostVerb(t, "GC", conf.with("cniVersion", "1.0.0"))).fails(t, cnierr.UnsupportedVersion, "1.0.0")
		h.del(t, p, conf)

		if o := h.run(t, call{args: []string{"-t"}, stdin: conf.json(t)}); o.status != 0 || o.stdout != "" {
			t.Errorf("-t on a good datastore: status %d, %s", o.status, o.stdout)
		}
		bad := h.run(t, call{args: []string{"-t"}, stdin: conf.with("etcd_endpoints", "http://127.0.0.1:1").json(t)})
		var f failure
		onlyObject(t, bad.stdout, &f)
		if bad.status != 1 || f.Code != cnierr.Startup || !strings.Contains(f.Msg, "data store connection failed") || f.Details == "" {
			t.Errorf("-t on a bad datastore: status %d, %s", bad.status, bad.stdout)
		}
	})
}

func TestDelete(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("Network/48 Linux/33 Linux/34 IPAM/24 IPAM/25 "+who.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, who)
			p := s.pod(t, sandboxA)
			s.del(t, s.pod(t, "never-added"), s.c)
			s.nothingLeft(t)
			s.add(t, p, s.c)
			first, second := s.start(t, p.verb(t, "DEL", s.c)), s.start(t, p.verb(t, "DEL", s.c))
			first.wait(t).succeeds(t)
			second.wait(t).succeeds(t)
			s.nothingLeft(t)
			s.del(t, p, s.c)
			s.nothingLeft(t)
		})
		t.Run("Network/48 Linux/35 DEL without CNI_NETNS, "+who.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, who)
			p, other := s.pod(t, sandboxA), newPod(t, "other", "")
			stays := s.add(t, other, s.c)
			addVeth(t, s.links, "cali0foreign", "cali1foreign")
			s.add(t, p, s.c)
			s.run(t, p.verb(t, "DEL", s.c).withoutNetns()).succeeds(t)
			if s.linkByAlias(t, p.alias()) != nil {
				t.Error("the interface is still there")
			}
			s.holds(t, p)
			s.works(t, other, stays)
			if _, err := s.links.LinkByName("cali0foreign"); err != nil {
				t.Errorf("a foreign interface is gone: %v", err)
			}
		})
		t.Run("Network/45 endpoint gone, "+who.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, who)
			p := s.pod(t, sandboxA)
			s.add(t, p, s.c)
			s.put(t, objects{s.objects(t).under("/workloadendpoints/").keys()[0]: ""})
			s.del(t, p, s.c)
			s.nothingLeft(t)
		})
		t.Run("Linux/32 Linux/38 namespace gone or a plain file, "+who.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, who)
			plain := filepath.Join(t.TempDir(), "netns")
			if err := os.WriteFile(plain, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"/run/netns/absent", plain} {
				p := s.pod(t, sandboxA)
				s.add(t, p, s.c)
				s.run(t, p.verb(t, "DEL", s.c).with("CNI_NETNS="+path)).succeeds(t)
				s.nothingLeft(t)
			}
		})
		t.Run("Linux/45 our own namespace, "+who.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, who)
			addVeth(t, s.links, "eth0", "uplink")
			p := s.pod(t, sandboxA)
			s.add(t, p, s.c)
			s.run(t, p.verb(t, "DEL", s.c).with("CNI_NETNS=/proc/self/ns/net")).fails(t, cnierr.OwnNamespace)
			if _, err := s.links.LinkByName("eth0"); err != nil {
				t.Errorf("the host's own eth0 is gone: %v", err)
			}
			s.nothingAllocated(t)
			override := p.verb(t, "DEL", s.c).with("CNI_NETNS=/run/netns/absent", "CNI_NETNS_OVERRIDE=1")
			s.run(t, override).succeeds(t)
		})
	}
}

func TestRepeatedAdd(t *testing.T) {
	t.Parallel()
	t.Run("Linux/41 new sandbox of the same pod", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, identities[1])
		a, b := s.pod(t, sandboxA), s.pod(t, sandboxB)
		s.add(t, a, s.c)
		second := s.add(t, b, s.c)
		ours := 0
		for _, link := range s.list(t) {
			if strings.HasPrefix(link.Attrs().Name, "cali") {
				ours++
			}
		}
		if ours != 1 {
			t.Errorf("the pod has %d interfaces on the host, want 1", ours)
		}
		s.works(t, b, second)
	})
	t.Run("Network/34 Network/72 other orchestrators", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, identities[0])
		p := s.pod(t, sandboxA)
		first := s.add(t, p, s.c)
		again := s.add(t, p, s.c.with("name", "net2"))
		if !slices.Equal(first.addresses(), again.addresses()) {
			t.Errorf("the second ADD has %v, the first %v", again.addresses(), first.addresses())
		}
		if profiles := s.record(t).Spec.Profiles; !slices.Equal(profiles, []string{network, "net2"}) {
			t.Errorf("profiles are %v", profiles)
		}
		s.works(t, p, first)

		// The container was restarted in a new namespace.
		restarted := newPod(t, sandboxA, "")
		r := s.add(t, restarted, s.c)
		if !slices.Equal(first.addresses(), r.addresses()) {
			t.Errorf("the restarted container has %v, recorded were %v", r.addresses(), first.addresses())
		}
		s.works(t, restarted, r)

		elsewhere := newPod(t, sandboxA, "").second("eth9")
		if r := s.add(t, elsewhere, s.c); !slices.Equal(first.addresses(), r.addresses()) {
			t.Errorf("another interface has %v, recorded were %v", r.addresses(), first.addresses())
		}
		if _, err := elsewhere.links.LinkByName("eth9"); err == nil {
			t.Error("the second interface was networked")
		}
	})
}

// inVersion is an outcome with the result in the form of another version.
func inVersion(t *testing.T, o outcome, version string) outcome {
	t.Helper()
	parsed, err := create.CreateFromBytes([]byte(o.stdout))
	if err != nil {
		t.Fatal(err)
	}
	converted, err := parsed.GetAsVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(converted)
	if err != nil {
		t.Fatal(err)
	}
	o.stdout = string(text)
	return o
}
