package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/model"
)

// checked adds a pod and returns the configuration of its CHECK.
func (n *node) checked(change ...func(*invocation.Call)) []byte {
	n.t.Helper()
	return n.config("prevResult", n.add(change...))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	check := func(n *node, conf []byte) error {
		return n.plugin.Check(deadline(n.t), n.call(invocation.Check, conf, inPod))
	}
	t.Run("Linux/46 right after ADD", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		if err := check(n, n.checked(inPod)); err != nil {
			t.Error(err)
		}
	})
	t.Run("Linux/46 without prevResult", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add(inPod)
		wantCode(t, check(n, n.config()), cnierr.InvalidConfiguration, "prevResult")
	})
	t.Run("Linux/46 all differences at once", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		conf := n.checked(inPod)
		n.dataplane.differences = []string{"interface eth0 is down"}
		for name := range n.endpoints() {
			n.store.Uproot(model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: name}.Path())
		}
		for _, entry := range n.entries(datastore.ListHandles{}) {
			n.store.Uproot(entry.Key.Path())
		}
		wantCode(t, check(n, conf), cnierr.CheckFailed, "eth0 is down", "record is missing", "10.77.0.", "not allocated")
	})
	t.Run("the record is another container's", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		conf := n.checked(inPod)
		n.add(inPod, container("c2"))
		wantCode(t, check(n, conf), cnierr.CheckFailed, `names container "c2"`)
	})
	t.Run("a second interface has no record", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add(inPod)
		conf := n.checked(inPod, ifName("eth1"))
		if err := n.plugin.Check(deadline(t), n.call(invocation.Check, conf, inPod, ifName("eth1"))); err != nil {
			t.Error(err)
		}
	})
	t.Run("datastore unreachable", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		conf := n.checked(inPod)
		n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
		wantCode(t, check(n, conf), cnierr.TryAgainLater)
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		row     string
		prepare func(*node)
		members []any
		code    cnierr.Code
		word    string
	}{
		{"Network/63 healthy", func(*node) {}, nil, 0, ""},
		{"Network/63 datastore unreachable", func(n *node) {
			n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
		}, nil, cnierr.NotAvailable, "connection refused"},
		{"Network/63 credentials end within 5 min", func(n *node) { n.credentialsEnd = n.now.Add(5 * time.Minute) }, nil, cnierr.NotAvailable, "/tls/client.crt"},
		{"Network/63 credentials have ended", func(n *node) { n.credentialsEnd = n.now.Add(-time.Hour) }, nil, cnierr.NotAvailable, "/tls/client.crt"},
		{"Network/63 credentials last", func(n *node) { n.credentialsEnd = n.now.Add(6 * time.Minute) }, nil, 0, ""},
		{"Network/63 nodename file missing", func(*node) {}, []any{"nodename_file_optional", false, "nodename_file", "/absent/nodename"}, cnierr.NotAvailable, "/absent/nodename"},
		{"Network/63 forwarding off", func(n *node) {
			n.host.forwarding = cnierr.New(cnierr.LimitedConnectivity, "IPv4 forwarding is off")
		}, nil, cnierr.LimitedConnectivity, "forwarding"},
		{"Network/63 node unknown, after an ADD that failed", func(n *node) {
			n.store.Uproot("/calico/resources/v3/projectcalico.org/nodes/" + nodeName)
			n.failingAdd(cnierr.NodeUnknown)
		}, nil, cnierr.NotAvailable, "108"},
		{"Network/63 no pool, after an ADD that failed", func(n *node) {
			n.store.Uproot("/calico/resources/v3/projectcalico.org/ippools/pods")
			n.failingAdd(cnierr.NoPool)
		}, nil, cnierr.NotAvailable, "101"},
		{"Network/63 no pool, but no ADD failed", func(n *node) {
			n.store.Uproot("/calico/resources/v3/projectcalico.org/ippools/pods")
		}, nil, 0, ""},
		{"Network/63 exhausted, not asked for", (*node).exhaust, nil, 0, ""},
		{"Network/63 exhausted, asked for", (*node).exhaust, []any{"status_reports_exhaustion", true}, cnierr.NotAvailable, "102"},
		{"Network/63 hung datastore", func(n *node) {
			n.store.SetHooks(memory.Hooks{Before: func(ctx context.Context, call memory.Call) error {
				<-ctx.Done()
				return memory.Down(call)
			}})
		}, nil, cnierr.NotAvailable, ""},
	} {
		t.Run(test.row, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			test.prepare(n)
			n.stderr.Reset()
			err := n.plugin.Status(deadline(t), n.call(invocation.Status, n.config(test.members...)))
			if test.code != 0 {
				wantCode(t, err, test.code, test.word)
			} else if err != nil || n.stderr.Len() > 0 {
				t.Errorf("error %v, log %q", err, n.stderr.String())
			}
		})
	}
	t.Run("Network/63 the hint goes when an ADD would succeed", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		path := "/calico/resources/v3/projectcalico.org/ippools/pods"
		pool, _ := n.store.Raw(path)
		n.store.Uproot(path)
		n.failingAdd(cnierr.NoPool)
		n.store.Plant(path, pool)
		for range 2 {
			n.store.ForgetCalls()
			if err := n.plugin.Status(deadline(t), n.call(invocation.Status, n.config())); err != nil {
				t.Fatal(err)
			}
		}
		if calls := len(n.store.Calls()); calls != 1 {
			t.Errorf("STATUS asked %d times after the hint was gone", calls)
		}
	})
}

func (n *node) failingAdd(code cnierr.Code) {
	n.t.Helper()
	_, err := n.runAdd(n.call(invocation.Add, n.config()))
	wantCode(n.t, err, code)
}

// exhaust leaves one pool of one address, and takes it.
func (n *node) exhaust() {
	n.t.Helper()
	n.store.Plant("/calico/resources/v3/projectcalico.org/ippools/pods",
		`{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"pods"},"spec":{"cidr":"10.77.0.0/32","blockSize":32}}`)
	n.add(container("last"))
	n.failingAdd(cnierr.AddressesExhausted)
}

func TestGC(t *testing.T) {
	t.Parallel()
	attachments := func(pairs ...string) []any {
		list := []any{}
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, map[string]any{"containerID": pairs[i], "ifname": pairs[i+1]})
		}
		return list
	}
	for _, test := range []struct {
		row     string
		members []any
		code    cnierr.Code
		// left are the containers whose link, record and address remain.
		left []string
	}{
		{"Network/64 both keys absent", nil, 0, []string{"a", "b"}},
		{"Network/64 null", []any{"cni.dev/valid-attachments", nil}, 0, nil},
		{"Network/64 empty", []any{"cni.dev/attachments", []any{}}, 0, nil},
		{"Network/64 one key", []any{"cni.dev/valid-attachments", attachments("a", "eth0")}, 0, []string{"a"}},
		{"Network/64 both keys, different lists", []any{"cni.dev/valid-attachments", attachments("a", "eth0"), "cni.dev/attachments", attachments("b", "eth0")}, 0, []string{"a", "b"}},
		{"Network/64 entry without containerID", []any{"cni.dev/attachments", []any{map[string]any{"ifname": "eth0"}}}, cnierr.InvalidConfiguration, []string{"a", "b"}},
		{"Network/64 no list", []any{"cni.dev/attachments", "a"}, cnierr.InvalidConfiguration, []string{"a", "b"}},
		{"disabled", []any{"cni.dev/attachments", []any{}, "disableGC", true}, 0, []string{"a", "b"}},
	} {
		for orchestrator, change := range map[string]func(*invocation.Call){"k8s": inPod, "cni": func(*invocation.Call) {}} {
			t.Run(test.row+"/"+orchestrator, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				for _, id := range []string{"a", "b"} {
					n.add(change, container(id), func(call *invocation.Call) {
						call.Args = strings.Replace(call.Args, "web-0", "web-"+id, 1)
					})
				}
				n.now = n.now.Add(time.Minute)
				err := n.plugin.GC(deadline(t), n.call(invocation.GC, n.config(test.members...), func(call *invocation.Call) {
					call.ContainerID, call.IfName, call.Netns, call.Args = "", "", "", ""
				}))
				if test.code != 0 {
					wantCode(t, err, test.code, "cni.dev/attachments")
				} else if err != nil {
					t.Fatal(err)
				}
				n.wantContainers(test.left)
				if len(test.left) == 0 {
					n.nothingLeft()
				}
			})
		}
	}
	t.Run("Network/65 one link cannot be removed", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add(container("a"))
		n.now = n.now.Add(time.Minute)
		n.dataplane.fail["Remove"] = errors.New("busy")
		err := n.plugin.GC(deadline(t), n.call(invocation.GC, n.config("cni.dev/attachments", nil)))
		wantCode(t, err, cnierr.Unclassified, "calia", "busy")
		if len(n.allocated()) != 0 || len(n.endpoints()) != 0 {
			t.Error("GC did not go on after the error")
		}
	})
	t.Run("nothing but its record is left of a container outside Kubernetes", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		for _, id := range []string{"a", "b"} {
			n.add(container(id))
		}
		n.add(inPod, container("c"))
		// DEL was killed after the release, and the namespace is gone.
		release := &ipamplugin.Plugin{Environment: n.plugin.Environment, NotesDirectory: n.plugin.NotesDirectory}
		for _, id := range []string{"a", "b", "c"} {
			if err := release.Del(deadline(t), n.call(invocation.Del, n.config(), container(id))); err != nil {
				t.Fatal(err)
			}
		}
		clear(n.dataplane.links)
		other := n.config("name", "other", "cni.dev/attachments", nil)
		for _, conf := range [][]byte{other, n.config("cni.dev/attachments", attachments("b", "eth0"))} {
			if err := n.plugin.GC(deadline(t), n.call(invocation.GC, conf)); err != nil {
				t.Fatal(err)
			}
		}
		var left []string
		for _, endpoint := range n.endpoints() {
			left = append(left, endpoint.Spec.ContainerID)
		}
		slices.Sort(left)
		// A pod's record is deleted before its addresses are free.
		if !slices.Equal(left, []string{"b", "c"}) {
			t.Errorf("records of %v are left, want b and c", left)
		}
	})
	t.Run("what an ADD took after GC began stays", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add(container("a"))
		n.now = n.now.Add(-time.Minute)
		if err := n.plugin.GC(deadline(t), n.call(invocation.GC, n.config("cni.dev/attachments", nil))); err != nil {
			t.Fatal(err)
		}
		if len(n.allocated()) != 1 {
			t.Error("its address is gone")
		}
	})
	t.Run("Network/6 the node's name would be a guess", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		err := n.plugin.GC(deadline(t), n.call(invocation.GC, n.config("nodename", "", "nodename_file_optional", false, "nodename_file", "/absent/nodename", "cni.dev/attachments", nil)))
		wantCode(t, err, cnierr.TryAgainLater, "/absent/nodename")
	})
}

func (n *node) wantContainers(want []string) {
	n.t.Helper()
	got := map[string][]string{}
	for _, owner := range n.dataplane.links {
		got["link"] = append(got["link"], owner.ContainerID)
	}
	for _, endpoint := range n.endpoints() {
		got["record"] = append(got["record"], endpoint.Spec.ContainerID)
	}
	for _, handle := range n.allocated() {
		got["address"] = append(got["address"], strings.TrimPrefix(handle, "net."))
	}
	for _, what := range []string{"link", "record", "address"} {
		slices.Sort(got[what])
		if !slices.Equal(got[what], want) {
			n.t.Errorf("containers with a %s: %v, want %v", what, got[what], want)
		}
	}
}

// recorder is an IPAM plugin that writes down what it was called with.
const recorder = `dir=$(dirname "$0")
cat > "$dir/stdin.$CNI_COMMAND"
env | grep ^CNI_ | sort > "$dir/env.$CNI_COMMAND"
if [ -e "$dir/fail.$CNI_COMMAND" ]; then cat "$dir/fail.$CNI_COMMAND"; exit 1; fi
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.5/24","gateway":"10.9.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}'
exit 0`

func (n *node) recorded(name string) string {
	n.t.Helper()
	content, err := os.ReadFile(filepath.Join(n.bin, name))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(content)
}

func (n *node) failing(verb, object string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.bin, "fail."+verb), []byte(object), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func TestExecutedIPAM(t *testing.T) {
	t.Parallel()
	recording := func(t *testing.T) (*node, []any) {
		n := newNode(t)
		n.install("recorder", recorder)
		return n, []any{"ipam", map[string]any{"type": "recorder", "x-own": 1.5}}
	}
	t.Run("Network/5 unknown CNI_ARGS and keys reach it", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		document := n.config(conf...)
		if _, err := n.runAdd(n.call(invocation.Add, document, func(c *invocation.Call) { c.Args = "IgnoreUnknown=1;FOO=bar" })); err != nil {
			t.Fatal(err)
		}
		if n.recorded("stdin.ADD") != string(document) || !strings.Contains(n.recorded("env.ADD"), "CNI_ARGS=IgnoreUnknown=1;FOO=bar\n") {
			t.Errorf("environment %s, stdin %s", n.recorded("env.ADD"), n.recorded("stdin.ADD"))
		}
	})
	t.Run("Network/74 ADD fails: DEL follows, the error is ADD's", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		n.failing("ADD", `{"code":42,"msg":"no address","details":"all taken"}`)
		n.failing("DEL", `{"code":43,"msg":"no DEL"}`)
		_, err := n.runAdd(n.call(invocation.Add, n.config(conf...)))
		wantCode(t, err, 42, "recorder", "ADD", "no address", "all taken")
		if want := strings.Replace(n.recorded("env.ADD"), "=ADD", "=DEL", 1); n.recorded("env.DEL") != want {
			t.Errorf("environment of DEL %s, want %s", n.recorded("env.DEL"), want)
		}
	})
	for verb, code := range map[string]string{"STATUS": "4", "GC": "1"} {
		t.Run("Network/66 "+verb+" unknown to it", func(t *testing.T) {
			t.Parallel()
			n, conf := recording(t)
			n.failing(verb, `{"code":`+code+`,"msg":"unknown"}`)
			call := n.call(invocation.Verb(verb), n.config(append(conf, "cni.dev/attachments", nil)...))
			run := map[string]func(context.Context, *invocation.Call) error{"STATUS": n.plugin.Status, "GC": n.plugin.GC}[verb]
			if err := run(deadline(t), call); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("Network/66 STATUS refused by it", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		n.failing("STATUS", `{"code":50,"msg":"full"}`)
		wantCode(t, n.plugin.Status(deadline(t), n.call(invocation.Status, n.config(conf...))), cnierr.NotAvailable, "full")
	})
	t.Run("Network/66 CHECK refused by it", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		added, err := n.runAdd(n.call(invocation.Add, n.config(conf...)))
		result := n.result(added, err)
		n.failing("CHECK", `{"code":99,"msg":"not mine"}`)
		wantCode(t, n.plugin.Check(deadline(t), n.call(invocation.Check, n.config(append(conf, "prevResult", result)...))), 99, "not mine")
	})
	t.Run("no address in its result", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.install("empty", `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0"}'; exit 0`)
		_, err := n.runAdd(n.call(invocation.Add, n.config("ipam", map[string]any{"type": "empty"})))
		wantCode(t, err, cnierr.Unclassified, "empty", "no address")
	})
	t.Run("Network/64 GC is forwarded also without keys", func(t *testing.T) {
		t.Parallel()
		n, conf := recording(t)
		if err := n.plugin.GC(deadline(t), n.call(invocation.GC, n.config(conf...))); err != nil {
			t.Fatal(err)
		}
		n.recorded("stdin.GC")
	})
}

func TestPodCIDRPlaceholders(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.install("host-local", recorder)
	ipam := map[string]any{"type": "host-local", "ranges": []any{
		[]any{map[string]any{"subnet": "USEPODCIDR"}}, []any{map[string]any{"subnet": "usePodCidr"}},
		[]any{map[string]any{"subnet": "usePodCidrIPv6"}}, []any{map[string]any{"subnet": "10.1.0.0/24"}},
	}, "x": 1}
	if err := n.plugin.Del(deadline(t), n.call(invocation.Del, n.config("ipam", ipam))); err != nil {
		t.Fatal(err)
	}
	var sent struct {
		IPAM struct {
			Ranges [][]struct{ Subnet string }
			X      json.Number
		}
	}
	if err := json.Unmarshal([]byte(n.recorded("stdin.DEL")), &sent); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, set := range sent.IPAM.Ranges {
		seen[set[0].Subnet] = true
	}
	if len(seen) != 4 || !seen["10.1.0.0/24"] || sent.IPAM.X != "1" {
		t.Errorf("sent %s", n.recorded("stdin.DEL"))
	}
	_, err := n.runAdd(n.call(invocation.Add, n.config("ipam", ipam), inPod))
	wantCode(t, err, cnierr.UnsupportedField, "ipam.ranges[0][0].subnet", "USEPODCIDR")
}

func TestAzure(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.install("azure-vnet-ipam", recorder)
	conf := n.config("ipam", map[string]any{"type": "azure-vnet-ipam"})
	section := func(verb string) map[string]string {
		var sent struct{ IPAM map[string]string }
		if err := json.Unmarshal([]byte(n.recorded("stdin."+verb)), &sent); err != nil {
			t.Fatal(err)
		}
		return sent.IPAM
	}
	add := func(id string) error {
		_, err := n.runAdd(n.call(invocation.Add, conf, container(id)))
		return err
	}
	del := func(id string) error {
		return n.plugin.Del(deadline(t), n.call(invocation.Del, conf, container(id)))
	}
	t.Run("Network/70 the first ADD knows no subnet, the second does", func(t *testing.T) {
		if err := add("a"); err != nil {
			t.Fatal(err)
		}
		if got := section("ADD"); !maps.Equal(got, map[string]string{"type": "azure-vnet-ipam"}) {
			t.Errorf("first ADD: ipam %v", got)
		}
		if err := add("b"); err != nil {
			t.Fatal(err)
		}
		if got := section("ADD")["subnet"]; got != "10.9.0.0/24" {
			t.Errorf("second ADD: subnet %q", got)
		}
	})
	t.Run("Network/70 DEL whose release fails keeps the state", func(t *testing.T) {
		n.failing("DEL", `{"code":42,"msg":"no"}`)
		wantCode(t, del("a"), 42)
		if err := os.Remove(filepath.Join(n.bin, "fail.DEL")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("Network/70 DEL names address and subnet", func(t *testing.T) {
		if err := del("a"); err != nil {
			t.Fatal(err)
		}
		if got := section("DEL"); got["ipAddress"] != "10.9.0.5" || got["subnet"] != "10.9.0.0/24" {
			t.Errorf("ipam %v", got)
		}
	})
	t.Run("Network/70 DEL without a stored address calls nothing", func(t *testing.T) {
		if err := os.Remove(filepath.Join(n.bin, "stdin.DEL")); err != nil {
			t.Fatal(err)
		}
		if err := del("a"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(n.bin, "stdin.DEL")); err == nil {
			t.Error("the IPAM plugin was called")
		}
	})
}

func TestGates(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	status := atomic.Int32{}
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(server.Close)
	for _, code := range []int{http.StatusOK, http.StatusNotModified} {
		status.Store(int32(code))
		asked.Store(0)
		n := newNode(t)
		if _, err := n.runAdd(n.call(invocation.Add, n.config("readiness_gates", []string{server.URL}))); err != nil || asked.Load() != 1 {
			t.Errorf("Network/13 status %d: asked %d times, %v", code, asked.Load(), err)
		}
	}
}

// answers is a transport that answers with one status after another, the last
// one for ever.
type answers []int

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	status := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: http.NoBody, Request: request}, nil
}

func TestGateTiming(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		row     string
		answers answers
		code    cnierr.Code
		wait    time.Duration
	}{
		{"Network/13 503 fails after 30 s", answers{503}, cnierr.TryAgainLater, 30 * time.Second},
		{"Network/13 ready at the first probe costs no wait", answers{200}, 0, 0},
		{"Network/13 ready at the third", answers{503, 404, 304}, 0, 10 * time.Second},
	} {
		t.Run(test.row, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := awaitGate(context.Background(), &http.Client{Transport: &test.answers}, "http://gate.test/ready")
				if waited := time.Since(start); waited != test.wait {
					t.Errorf("waited %v, want %v", waited, test.wait)
				}
				if test.code != 0 {
					wantCode(t, err, test.code, "http://gate.test/ready", "Service Unavailable")
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// silence is a transport that answers with 503 as often as it says, and then
// not at all.
type silence int

func (s *silence) RoundTrip(request *http.Request) (*http.Response, error) {
	if *s--; *s >= 0 {
		return (&answers{503}).RoundTrip(request)
	}
	<-request.Context().Done()
	return nil, request.Context().Err()
}

func TestGateNamesItsLastAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answered := silence(2)
		client := &http.Client{Transport: &answered}
		// The third question is still open when the wait ends.
		ctx, cancel := context.WithTimeout(context.Background(), 12*time.Second)
		defer cancel()
		wantCode(t, awaitGate(ctx, client, "http://gate.test/ready"), cnierr.TryAgainLater, "Service Unavailable")
	})
}

func TestConnection(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := n.plugin.TestConnection(deadline(t), n.config()); err != nil {
		t.Errorf("Network/53 good: %v", err)
	}
	n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
	err := n.plugin.TestConnection(deadline(t), n.config())
	wantCode(t, err, cnierr.Startup, "data store connection failed")
	var coded *cnierr.Error
	if !errors.As(err, &coded) || !strings.Contains(coded.Details, "connection refused") {
		t.Errorf("details %q", coded.Details)
	}
}
