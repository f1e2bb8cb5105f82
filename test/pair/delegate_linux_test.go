package pair

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"calico-cni/pkg/cnierr"
)

// stranger is a CNI_PATH whose calico-ipam is of another build, so that calico
// must execute it.
func stranger(t *testing.T) string {
	t.Helper()
	where := executables(t)
	content, err := os.ReadFile(filepath.Join(where.pair, "calico-ipam"))
	if err != nil {
		t.Fatal(err)
	}
	copy(content[len(content)-64:], "calico-cni:another-build")
	folder := t.TempDir()
	// A process forked meanwhile would inherit the open file, which nobody
	// could then execute.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(filepath.Join(folder, "calico-ipam"), content, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

var macs = regexp.MustCompile(`(?i)([0-9a-f]{2}:){5}[0-9a-f]{2}`)

// TestSameProcessAndExecuted runs the same calls both ways. The MAC of the
// pod's interface is the kernel's choice; everything else is the same, byte
// for byte.
func TestSameProcessAndExecuted(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		for _, version := range []string{"0.2.0", "0.4.0", "1.1.0"} {
			t.Run(who.name+" "+version, func(t *testing.T) {
				t.Parallel()
				here, there := newHost(t), newHost(t)
				p, foreign := newPod(t, "container", who.args), stranger(t)
				conf := newConfig().with("cniVersion", version).with("pools",
					[]any{map[string]any{"cidr": "10.77.0.8/31", "blockSize": 31}, pool("fd00:77::/112")})
				both := func(c call) {
					t.Helper()
					mine := here.run(t, c)
					executed := there.run(t, c.with("CNI_PATH="+foreign))
					if a, b := macs.ReplaceAllString(mine.stdout, "MAC"), macs.ReplaceAllString(executed.stdout, "MAC"); a != b || mine.status != executed.status {
						t.Errorf("%s in the same process ends with %d:\n%s\nexecuted with %d:\n%s", c.verb, mine.status, a, executed.status, b)
					}
				}
				// The namespace's path is part of the result, so the pod is the
				// same; it leaves one host before it joins the other.
				alternate := func(p *pod, verb string) {
					t.Helper()
					mine := here.run(t, p.verb(t, verb, conf))
					here.run(t, p.verb(t, "DEL", conf)).succeeds(t)
					executed := there.run(t, p.verb(t, verb, conf).with("CNI_PATH="+foreign))
					there.run(t, p.verb(t, "DEL", conf).with("CNI_PATH="+foreign)).succeeds(t)
					if a, b := macs.ReplaceAllString(mine.stdout, "MAC"), macs.ReplaceAllString(executed.stdout, "MAC"); a != b || mine.status != executed.status {
						t.Errorf("%s in the same process ends with %d:\n%s\nexecuted with %d:\n%s", verb, mine.status, a, executed.status, b)
					}
				}
				alternate(p, "ADD")
				wanting := p.sandbox("wanting")
				wanting.args = strings.TrimPrefix(who.args+";IP=192.0.2.99", ";")
				both(wanting.verb(t, "ADD", conf))
				wanting.args = strings.TrimPrefix(who.args+";IP=nonsense", ";")
				both(wanting.verb(t, "ADD", conf))
				both(p.verb(t, "ADD", conf.with("ipam.ipv4_pools", []any{"nowhere"})))
				both(hostVerb(t, "STATUS", conf))
				both(hostVerb(t, "GC", conf))
				gone := map[string]any{"cniVersion": version, "ips": []any{map[string]any{"interface": 0, "version": "4", "address": "10.77.0.8/32"}},
					"interfaces": []any{map[string]any{"name": "eth0", "sandbox": p.network.Path()}}}
				both(p.verb(t, "CHECK", conf.with("prevResult", gone)))
				both(p.verb(t, "DEL", conf))
				for _, name := range []string{"one", "two"} {
					here.add(t, newPod(t, name, ""), conf.with("cniVersion", "1.1.0"))
					there.add(t, newPod(t, name, ""), conf.with("cniVersion", "1.1.0"))
				}
				both(newPod(t, "exhausted", who.args).verb(t, "ADD", conf))
			})
		}
	}
}

// recorded is one line that the stand-in wrote.
type recorded struct {
	Verb  string            `json:"verb"`
	Env   map[string]string `json:"env"`
	Stdin map[string]any    `json:"stdin"`
}

// standin is a stand-in plugin under some name.
type standin struct {
	path, record string
	answers      map[string]any
	failing      []string
}

// newStandin installs the stand-in under a name and answers ADD with an
// address.
func newStandin(t *testing.T, name string) *standin {
	t.Helper()
	folder := t.TempDir()
	if err := os.Symlink(filepath.Join(executables(t).tools, "standin"), filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
	return &standin{path: folder, record: filepath.Join(folder, "record"), answers: map[string]any{
		"ADD": map[string]any{"cniVersion": "1.1.0", "ips": []any{map[string]any{"address": "10.99.0.7/24"}}},
	}}
}

func (s *standin) fail(verb string, code int, msg string) {
	s.answers[verb] = map[string]any{"cniVersion": "1.1.0", "code": code, "msg": msg}
	s.failing = append(s.failing, verb)
}

// instruct adds the instructions, and IPAM by the stand-in.
func (s *standin) instruct(c config, name string) config {
	return c.with("ipam", map[string]any{"type": name, "subnet": "10.99.0.0/24"}).
		with("standin", map[string]any{"record": s.record, "answers": s.answers, "failing": s.failing})
}

func (s *standin) calls(t *testing.T) []recorded {
	t.Helper()
	file, err := os.Open(s.record)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var calls []recorded
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, r)
	}
	return calls
}

func (s *standin) verbs(t *testing.T) string {
	t.Helper()
	var verbs []string
	for _, c := range s.calls(t) {
		verbs = append(verbs, c.Verb)
	}
	return strings.Join(verbs, " ")
}

// TestOtherIPAMPlugin checks verb, environment and standard input of each of
// the five verbs.
func TestOtherIPAMPlugin(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("Network/5 "+who.name, func(t *testing.T) {
			t.Parallel()
			h, s := newHost(t), newStandin(t, "our-ipam")
			p := newPod(t, "container", strings.TrimPrefix(who.args+";UNKNOWN=yes", ";"))
			conf := s.instruct(newConfig(), "our-ipam").with("x-passed", "through")
			added := h.run(t, p.verb(t, "ADD", conf).with("CNI_PATH="+s.path)).succeeds(t)
			if r := added.result(t); !slices.Equal(r.addresses(), []string{"10.99.0.7"}) {
				t.Errorf("the addresses are %v", r.addresses())
			}
			h.reaches(t, "10.99.0.7")
			h.run(t, p.check(t, conf, added).with("CNI_PATH="+s.path)).succeeds(t)
			h.run(t, hostVerb(t, "STATUS", conf).with("CNI_PATH="+s.path)).succeeds(t)
			gc := conf.gcKey(validKey, attachments(p.container, p.ifName))
			h.run(t, hostVerb(t, "GC", gc).with("CNI_PATH="+s.path)).succeeds(t)
			h.run(t, p.verb(t, "DEL", conf).with("CNI_PATH="+s.path)).succeeds(t)
			if verbs := s.verbs(t); verbs != "ADD CHECK STATUS GC DEL" {
				t.Fatalf("the IPAM plugin was called with %s", verbs)
			}
			for _, c := range s.calls(t) {
				s.checkCall(t, c, p)
			}
		})
	}
}

func (s *standin) checkCall(t *testing.T, c recorded, p *pod) {
	t.Helper()
	if c.Env["CNI_COMMAND"] != c.Verb || c.Env["CNI_PATH"] != s.path {
		t.Errorf("%s: the environment is %v", c.Verb, c.Env)
	}
	if c.Stdin["x-passed"] != "through" || c.Stdin["name"] != network || c.Stdin["cniVersion"] != "1.1.0" {
		t.Errorf("%s: standard input is %v", c.Verb, c.Stdin)
	}
	if c.Verb == "CHECK" && c.Stdin["prevResult"] == nil || c.Verb == "GC" && c.Stdin[validKey] == nil {
		t.Errorf("%s: standard input lacks what the runtime sent: %v", c.Verb, c.Stdin)
	}
	if c.Verb == "STATUS" || c.Verb == "GC" {
		return
	}
	want := map[string]string{
		"CNI_CONTAINERID": p.container, "CNI_IFNAME": p.ifName, "CNI_NETNS": p.network.Path(),
		"CNI_ARGS": "IgnoreUnknown=1;" + p.args,
	}
	for name, value := range want {
		if c.Env[name] != value {
			t.Errorf("%s: %s is %q, want %q", c.Verb, name, c.Env[name], value)
		}
	}
}

func TestFailingIPAMPlugin(t *testing.T) {
	t.Parallel()
	t.Run("Network/74 ADD fails", func(t *testing.T) {
		t.Parallel()
		h, s, p := newHost(t), newStandin(t, "our-ipam"), newPod(t, "container", "A=b")
		s.fail("ADD", 4242, "no more")
		s.fail("DEL", 4243, "not that either")
		conf := s.instruct(newConfig(), "our-ipam")
		h.run(t, p.verb(t, "ADD", conf).with("CNI_PATH="+s.path)).fails(t, 4242, "no more", "our-ipam", "ADD")
		calls := s.calls(t)
		if s.verbs(t) != "ADD DEL" {
			t.Fatalf("the IPAM plugin was called with %s", s.verbs(t))
		}
		for name, value := range calls[0].Env {
			if name != "CNI_COMMAND" && calls[1].Env[name] != value {
				t.Errorf("DEL: %s is %q, in ADD %q", name, calls[1].Env[name], value)
			}
		}
		if len(h.objects(t).endpoints(t)) != 0 || h.linkByAlias(t, p.alias()) != nil {
			t.Error("the failed ADD left a record or an interface")
		}
	})
	t.Run("Network/50 DEL fails", func(t *testing.T) {
		t.Parallel()
		for _, who := range identities {
			h, s, p := newHost(t), newStandin(t, "our-ipam"), newPod(t, "container", who.args)
			h.run(t, p.verb(t, "ADD", s.instruct(newConfig(), "our-ipam")).with("CNI_PATH="+s.path)).succeeds(t)
			s.fail("DEL", 4243, "stuck")
			h.run(t, p.verb(t, "DEL", s.instruct(newConfig(), "our-ipam")).with("CNI_PATH="+s.path)).fails(t, 4243, "stuck")
			if len(h.objects(t).endpoints(t)) != 0 || h.linkByAlias(t, p.alias()) != nil {
				t.Errorf("%s: the record or the interface is still there", who.name)
			}
		}
	})
	t.Run("Network/66 verbs that it does not know", func(t *testing.T) {
		t.Parallel()
		h, s, p := newHost(t), newStandin(t, "our-ipam"), newPod(t, "container", "")
		s.fail("STATUS", 4, "unknown CNI_COMMAND: STATUS")
		s.fail("GC", 1, "config version does not allow GC")
		s.fail("CHECK", 4244, "address gone")
		conf := s.instruct(newConfig(), "our-ipam")
		h.run(t, hostVerb(t, "STATUS", conf).with("CNI_PATH="+s.path)).succeeds(t)
		h.run(t, hostVerb(t, "GC", conf).with("CNI_PATH="+s.path)).succeeds(t)
		added := h.run(t, p.verb(t, "ADD", conf).with("CNI_PATH="+s.path)).succeeds(t)
		h.run(t, p.check(t, conf, added).with("CNI_PATH="+s.path)).fails(t, 4244, "address gone")
	})
	t.Run("other errors are returned", func(t *testing.T) {
		t.Parallel()
		h, s := newHost(t), newStandin(t, "our-ipam")
		s.fail("STATUS", 50, "server away")
		s.fail("GC", 4245, "disk full")
		conf := s.instruct(newConfig(), "our-ipam")
		h.run(t, hostVerb(t, "STATUS", conf).with("CNI_PATH="+s.path)).fails(t, cnierr.NotAvailable, "server away")
		h.run(t, hostVerb(t, "GC", conf).with("CNI_PATH="+s.path)).fails(t, 4245, "disk full")
	})
	t.Run("no address", func(t *testing.T) {
		t.Parallel()
		h, s, p := newHost(t), newStandin(t, "our-ipam"), newPod(t, "container", "")
		s.answers["ADD"] = map[string]any{"cniVersion": "1.1.0"}
		o := h.run(t, p.verb(t, "ADD", s.instruct(newConfig(), "our-ipam")).with("CNI_PATH="+s.path))
		o.fails(t, o.failure.Code, "our-ipam")
		if s.verbs(t) != "ADD DEL" {
			t.Errorf("the IPAM plugin was called with %s", s.verbs(t))
		}
	})
}

func TestAzure(t *testing.T) {
	t.Parallel()
	t.Run("Network/70 azure-vnet-ipam", func(t *testing.T) {
		t.Parallel()
		h, s, p := newHost(t), newStandin(t, "azure-vnet-ipam"), newPod(t, "container", "")
		conf := func() config {
			return s.instruct(newConfig(), "azure-vnet-ipam").without("ipam.subnet")
		}
		h.run(t, p.verb(t, "DEL", conf()).with("CNI_PATH="+s.path)).succeeds(t)
		if s.verbs(t) != "" {
			t.Errorf("DEL without a stored address calls the IPAM plugin: %s", s.verbs(t))
		}
		h.run(t, p.verb(t, "ADD", conf()).with("CNI_PATH="+s.path)).succeeds(t)
		other := newPod(t, "other", "")
		s.answers["ADD"] = map[string]any{"cniVersion": "1.1.0", "ips": []any{map[string]any{"address": "10.99.0.8/24"}}}
		h.run(t, other.verb(t, "ADD", conf()).with("CNI_PATH="+s.path)).succeeds(t)
		calls := s.calls(t)
		if subnet := calls[len(calls)-1].Stdin["ipam"].(map[string]any)["subnet"]; subnet != "10.99.0.0/24" {
			t.Errorf("the second ADD passes subnet %v, want that of the last result", subnet)
		}

		s.fail("DEL", 4246, "busy")
		h.run(t, p.verb(t, "DEL", conf()).with("CNI_PATH="+s.path)).fails(t, 4246, "busy")
		s.failing, s.answers["DEL"] = nil, nil
		delete(s.answers, "DEL")
		h.run(t, p.verb(t, "DEL", conf()).with("CNI_PATH="+s.path)).succeeds(t)
		calls = s.calls(t)
		ipam := calls[len(calls)-1].Stdin["ipam"].(map[string]any)
		if ipam["ipAddress"] != "10.99.0.7" || ipam["subnet"] != "10.99.0.0/24" {
			t.Errorf("DEL passes ipam %v", ipam)
		}
		count := len(calls)
		h.run(t, p.verb(t, "DEL", conf()).with("CNI_PATH="+s.path)).succeeds(t)
		if len(s.calls(t)) != count {
			t.Error("DEL after the release calls the IPAM plugin again")
		}
	})
}
