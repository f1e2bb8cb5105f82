package pair

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
)

func TestNodeName(t *testing.T) {
	t.Parallel()
	t.Run("Network/7 Network/8 configuration, file, hostname, operating system", func(t *testing.T) {
		t.Parallel()
		hostName, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		bare := newConfig().without("nodename")
		for _, c := range []struct{ conf, file, want string }{
			{"from-config", "from-file\n", "from-config"},
			{"", " from-file \n", "from-file"},
			{"", "", "from-hostname"},
			{"-", "", strings.ToLower(strings.TrimSpace(hostName))},
		} {
			h, p, conf := newHost(t), newPod(t, "container", ""), bare
			switch c.conf {
			case "-":
			case "":
				conf = conf.with("hostname", "from-hostname")
			default:
				conf = conf.with("hostname", "from-hostname").with("nodename", c.conf)
			}
			if c.file != "" {
				h.write(t, "/var/lib/calico/nodename", c.file)
			}
			h.add(t, p, conf)
			if node := h.record(t).Spec.Node; node != c.want {
				t.Errorf("the node is %q, want %q", node, c.want)
			}
		}
	})
	t.Run("Network/6 file missing", func(t *testing.T) {
		t.Parallel()
		h, p := newHost(t), newPod(t, "container", "")
		conf := newConfig().with("nodename_file_optional", false)
		begin := time.Now()
		h.run(t, p.verb(t, "ADD", conf)).fails(t, cnierr.TryAgainLater, "/var/lib/calico/nodename")
		if waited := time.Since(begin); waited < 5*time.Second || waited > 10*time.Second {
			t.Errorf("ADD waited %v, want 5 s", waited)
		}
		h.run(t, hostVerb(t, "STATUS", conf)).fails(t, cnierr.NotAvailable, "/var/lib/calico/nodename")

		appears := time.AfterFunc(3*time.Second, func() { h.write(t, "/var/lib/calico/nodename", "node-1\n") })
		defer appears.Stop()
		added := h.run(t, p.verb(t, "ADD", conf)).succeeds(t)
		if err := os.Remove(h.file("/var/lib/calico/nodename")); err != nil {
			t.Fatal(err)
		}
		h.run(t, p.check(t, conf, added)).succeeds(t)
		h.del(t, p, conf)
		h.nothingLeft(t)
	})
}

func TestMTU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file string
		mtu        int
		require    bool
		want       int
	}{
		{"Network/9 mtu wins over the file", "1400\n", 1450, false, 1450},
		{"Network/9 the file serves mtu 0", " 1400\n", 0, false, 1400},
		{"Network/10 no file", "", 0, false, 1500},
		{"Network/10 no file, mtu set", "", 1450, false, 1450},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, p := newHost(t), newPod(t, "container", "")
			if c.file != "" {
				h.write(t, "/var/lib/calico/mtu", c.file)
			}
			r := h.add(t, p, newConfig().with("mtu", c.mtu))
			if mtu := h.linkOf(t, r).Attrs().MTU; mtu != c.want {
				t.Errorf("the host end has MTU %d, want %d", mtu, c.want)
			}
		})
	}
	for _, c := range []struct {
		name, file string
		conf       config
		words      []string
	}{
		{"Network/10 garbage in the file", "big", newConfig(), []string{"/var/lib/calico/mtu", "big"}},
		{"Network/10 file required", "", newConfig().with("require_mtu_file", true), []string{"/var/lib/calico/mtu"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, p := newHost(t), newPod(t, "container", "")
			if c.file != "" {
				h.write(t, "/var/lib/calico/mtu", c.file)
			}
			before := h.state(t)
			o := h.run(t, p.verb(t, "ADD", c.conf))
			o.fails(t, o.failure.Code, c.words...)
			h.unchanged(t, before)
		})
	}
}

// TestReadinessGates uses a server on the host's loopback.
func TestReadinessGates(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	serve := func(status int) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		server.Listener.Close()
		h.network.Do(t, func() {
			var err error
			if server.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
		})
		server.Start()
		t.Cleanup(server.Close)
		return server.URL
	}
	for _, c := range []struct {
		name   string
		status int
	}{{"Network/13 200", 200}, {"Network/13 304", 304}} {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			h.add(t, newPod(t, "container-"+http.StatusText(c.status)[:2], ""), newConfig().with("readiness_gates", []any{serve(c.status)}))
			if waited := time.Since(begin); waited > 4*time.Second {
				t.Errorf("a gate that answers at once costs %v", waited)
			}
		})
	}
	t.Run("Network/13 503", func(t *testing.T) {
		t.Parallel()
		url, begin := serve(503), time.Now()
		h.run(t, newPod(t, "refused", "").verb(t, "ADD", newConfig().with("readiness_gates", []any{url}))).fails(t, cnierr.TryAgainLater, url)
		if waited := time.Since(begin); waited < 25*time.Second || waited > 45*time.Second {
			t.Errorf("ADD waited %v, want about 30 s", waited)
		}
	})
}

func TestLog(t *testing.T) {
	t.Parallel()
	t.Run("Network/54 file with parents, and stderr", func(t *testing.T) {
		t.Parallel()
		h, p := newHost(t), newPod(t, "container", "")
		conf := newConfig().with("log_file_path", "/var/lib/log/calico/cni.log").with("log_level", "nonsense").
			with("nodenmae", "a warning")
		o := h.run(t, p.verb(t, "ADD", conf)).succeeds(t)
		content, err := os.ReadFile(h.file("/var/lib/log/calico/cni.log"))
		if err != nil || len(content) == 0 {
			t.Fatalf("the log holds %d bytes: %v", len(content), err)
		}
		if o.stderr == "" || strings.Contains(o.stderr, "level=DEBUG") {
			t.Errorf("stderr is empty or has debug lines under an unknown level:\n%s", o.stderr)
		}
		h.run(t, p.verb(t, "DEL", conf.with("log_file_path", "/proc/version/cni.log"))).succeeds(t)
	})
	t.Run("Network/56 no credential in the log", func(t *testing.T) {
		t.Parallel()
		h, p := newHost(t), newPod(t, "container", "")
		conf := newConfig().with("policy", map[string]any{"k8s_auth_token": "S3CRET-TOKEN"}).with("datastore_type", "embedded")
		add := p.verb(t, "ADD", conf).with("ETCD_USERNAME=root", "ETCD_PASSWORD=S3CRET-PASSWORD", "K8S_API_TOKEN=S3CRET-ENV")
		o := h.run(t, add)
		if strings.Contains(o.stderr+o.stdout, "S3CRET") {
			t.Errorf("a credential is shown:\n%s%s", o.stderr, o.stdout)
		}
		bad := add
		bad.stdin = conf.with("policy.k8s_auth_token", []any{"S3CRET-LIST"}).json(t)
		if o := h.run(t, bad).fails(t, cnierr.InvalidConfiguration, "policy.k8s_auth_token"); strings.Contains(o.stderr+o.stdout, "S3CRET") {
			t.Errorf("a credential is shown:\n%s%s", o.stderr, o.stdout)
		}
	})
}

func TestProfile(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("Network/33 "+who.name, func(t *testing.T) {
			t.Parallel()
			s := &scene{host: newHost(t), identity: who, c: newConfig()}
			p := s.pod(t, sandboxA)
			s.add(t, p, s.c)
			key := resourceRoot + "profiles/" + network
			profile := s.objects(t)[key]
			everywhere := !strings.Contains(profile, "has("+network+")")
			if profile == "" || everywhere != who.kubernetes() {
				t.Errorf("the profile is %s", profile)
			}
			var document map[string]any
			if err := json.Unmarshal([]byte(profile), &document); err != nil {
				t.Fatal(err)
			}
			document["metadata"].(map[string]any)["labels"] = map[string]any{"mine": "yes"}
			changed, err := json.Marshal(document)
			if err != nil {
				t.Fatal(err)
			}
			s.put(t, objects{key: string(changed)})
			s.del(t, p, s.c)
			s.add(t, s.pod(t, sandboxB), s.c)
			if now := s.objects(t)[key]; now != string(changed) {
				t.Errorf("the profile was changed to %s", now)
			}
		})
	}
}

// TestHostWithoutIPv6 has a kernel that was started without IPv6.
func TestHostWithoutIPv6(t *testing.T) {
	t.Parallel()
	t.Run("Linux/19 Network/37", func(t *testing.T) {
		t.Parallel()
		h, p := newHost(t), newPod(t, "container", "")
		add := p.verb(t, "ADD", newConfig())
		add.withoutIPv6 = true
		begin := time.Now()
		h.run(t, add).fails(t, cnierr.NetlinkRefused, "ipv6")
		if waited := time.Since(begin); waited > 5*time.Second {
			t.Errorf("ADD failed after %v, want about 1 s", waited)
		}
		h.nothingLeft(t)
	})
}
