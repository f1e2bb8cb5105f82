package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
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
