package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/session"
	"calico-cni/pkg/workload"
)

func TestAddAndDel(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*invocation.Call){
		"other orchestrators": func(*invocation.Call) {},
		"Kubernetes":          inPod,
	} {
		t.Run("Network/38 "+name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			result := n.add(change)
			if len(result.Interfaces) != 2 || result.Interfaces[1].Name != "eth0" || result.Interfaces[1].Sandbox != "/ns/c1" ||
				result.Interfaces[1].Mac != "02:00:00:00:00:07" {
				t.Errorf("interfaces %+v", result.Interfaces)
			}
			if len(result.IPs) != 1 || *result.IPs[0].Interface != 1 || result.IPs[0].Gateway != nil {
				t.Errorf("ips %+v", result.IPs)
			}
			if ones, _ := result.IPs[0].Address.Mask.Size(); ones != 32 {
				t.Errorf("mask /%d, want /32", ones)
			}
			if len(result.Routes) != 1 {
				t.Errorf("routes %+v", result.Routes)
			}
			endpoints := n.endpoints()
			if len(endpoints) != 1 {
				t.Fatalf("%d endpoints", len(endpoints))
			}
			for _, endpoint := range endpoints {
				spec := endpoint.Spec
				if spec.ContainerID != "c1" || spec.Node != nodeName || spec.InterfaceName != result.Interfaces[0].Name ||
					!slices.Equal(spec.IPNetworks, []string{result.IPs[0].Address.String()}) || !slices.Equal(spec.Profiles, []string{"net"}) {
					t.Errorf("endpoint %+v", spec)
				}
			}
			n.del(change)
			n.nothingLeft()
			n.del(change)
		})
	}
}

func TestProfile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*invocation.Call)
		source string
	}{
		"other orchestrators": {func(*invocation.Call) {}, `"source":{"selector":"has(net)"}`},
		"Kubernetes":          {inPod, `"ingress":[{"action":"Allow","source":{},"destination":{}}]`},
	} {
		t.Run("Network/33 "+name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.add(test.change)
			key := "/calico/resources/v3/projectcalico.org/profiles/net"
			profile, ok := n.store.Raw(key)
			if !ok || !strings.Contains(profile, test.source) || !strings.Contains(profile, `"labelsToApply":{"net":""}`) {
				t.Fatalf("profile %s", profile)
			}
			n.store.Plant(key, strings.Replace(profile, "Allow", "Deny", 1))
			changed, _ := n.store.Raw(key)
			n.add(test.change, container("c2"))
			if after, _ := n.store.Raw(key); after != changed {
				t.Errorf("the profile was changed to %s", after)
			}
		})
	}
	t.Run("Network/33 not with a policy type", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		if _, err := n.runAdd(n.call(invocation.Add, n.config("policy", map[string]any{"type": "other"}))); err != nil {
			t.Fatal(err)
		}
		if entries := n.entries(datastore.ListResources{Kind: model.KindProfile}); len(entries) != 0 {
			t.Errorf("profile %v was created", entries[0].Key)
		}
	})
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	const key = "/calico/resources/v3/projectcalico.org/clusterinformations/default"
	for name, value := range map[string]string{
		"object missing": "",
		"false":          `{"kind":"ClusterInformation","metadata":{"name":"default"},"spec":{"datastoreReady":false}}`,
		"value missing":  `{"kind":"ClusterInformation","metadata":{"name":"default"},"spec":{}}`,
	} {
		t.Run("Network/12 "+name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.store.Uproot(key)
			if value != "" {
				n.store.Plant(key, value)
			}
			before := n.store.Dump()
			const words = "Calico is currently not ready to process requests"
			_, err := n.runAdd(n.call(invocation.Add, n.config()))
			wantCode(t, err, cnierr.TryAgainLater, words, "ClusterInformation")
			wantCode(t, n.plugin.Del(deadline(t), n.call(invocation.Del, n.config())), cnierr.TryAgainLater, words)
			wantCode(t, n.plugin.Status(deadline(t), n.call(invocation.Status, n.config())), cnierr.NotAvailable, words)
			n.dataplane.links["cali1"] = workload.Attachment{Network: "net", ContainerID: "gone", IfName: "eth0"}
			gc := n.call(invocation.GC, n.config("cni.dev/attachments", nil))
			wantCode(t, n.plugin.GC(deadline(t), gc), cnierr.TryAgainLater, words)
			if n.store.Dump() != before || len(n.dataplane.links) != 1 {
				t.Error("something was touched")
			}
		})
	}
}

// TestFailureLeavesNothing fails ADD at each of its steps.
func TestFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	broken := cnierr.New(cnierr.NetlinkRefused, "no")
	for name, fail := range map[string]func(*node){
		"data plane":      func(n *node) { n.dataplane.fail["Add"] = broken },
		"overtaken":       func(n *node) { n.dataplane.fail["Confirm"] = cnierr.New(cnierr.Overtaken, "gone") },
		"endpoint write":  func(n *node) { n.failWrites(model.KindWorkloadEndpoint) },
		"host forwarding": func(n *node) { n.embedded, n.host.failAdd = true, broken },
		"panic":           func(n *node) { n.dataplane.during = func() { panic("kaput") } },
		"stdout closed":   func(n *node) { n.undelivered = broken },
	} {
		for orchestrator, change := range map[string]func(*invocation.Call){"k8s": inPod, "cni": func(*invocation.Call) {}} {
			t.Run("Network/37 "+name+"/"+orchestrator, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				fail(n)
				if _, err := n.runAdd(n.call(invocation.Add, n.config(), change)); err == nil {
					t.Fatal("ADD succeeded")
				}
				n.nothingLeft()
			})
		}
	}
}

// TestFailureBesideAnotherInterface: the addresses of a container hang on one
// handle, so those of its first interface must survive.
func TestFailureBesideAnotherInterface(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*node){
		"data plane": func(n *node) { n.dataplane.fail["Add"] = errors.New("no") },
		"confirm":    func(n *node) { n.dataplane.fail["Confirm"] = errors.New("no") },
	} {
		t.Run("Network/73 "+name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			first := n.add(inPod).IPs[0].Address.IP.String()
			fail(n)
			if _, err := n.runAdd(n.call(invocation.Add, n.config(), inPod, ifName("eth1"))); err == nil {
				t.Fatal("ADD succeeded")
			}
			if _, held := n.allocated()[first]; !held {
				t.Errorf("the first interface's address %s was freed", first)
			}
			clear(n.dataplane.fail)
			n.del(inPod, ifName("eth1"))
			if _, held := n.allocated()[first]; !held {
				t.Errorf("DEL of the second interface freed %s", first)
			}
			n.del(inPod)
			n.nothingLeft()
		})
	}
}

func TestSecondInterface(t *testing.T) {
	t.Parallel()
	t.Run("Network/73 both work, the record is the first's", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		first := n.add(inPod)
		second := n.add(inPod, ifName("eth1"))
		if first.Interfaces[0].Name == second.Interfaces[0].Name {
			t.Errorf("both have host interface %s", first.Interfaces[0].Name)
		}
		for _, endpoint := range n.endpoints() {
			if endpoint.Spec.InterfaceName != first.Interfaces[0].Name {
				t.Errorf("the record names %s", endpoint.Spec.InterfaceName)
			}
		}
		n.del(inPod, ifName("eth1"))
		if len(n.endpoints()) != 1 || len(n.dataplane.links) != 1 {
			t.Error("DEL of the second interface touched the first")
		}
		n.del(inPod)
		n.nothingLeft()
	})
}

func TestPreviousResult(t *testing.T) {
	t.Parallel()
	previous := map[string]any{
		"cniVersion": "1.1.0", "interfaces": []any{map[string]any{"name": "lo", "sandbox": "/ns/c1"}},
		"ips": []any{map[string]any{"address": "127.0.0.1/8", "interface": 0}},
	}
	t.Run("Network/67 loopback before us", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		result, err := n.runAdd(n.call(invocation.Add, n.config("prevResult", previous)))
		got := n.result(result, err)
		if len(got.Interfaces) != 3 || got.Interfaces[0].Name != "lo" || got.Interfaces[2].Name != "eth0" {
			t.Errorf("interfaces %v", got.Interfaces)
		}
		if len(got.IPs) != 2 || *got.IPs[0].Interface != 0 || *got.IPs[1].Interface != 2 {
			t.Errorf("ips %v", got.IPs)
		}
	})
	t.Run("Network/67 malformed: nothing is touched", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		_, err := n.runAdd(n.call(invocation.Add, n.config("prevResult", map[string]any{"ips": 1})))
		wantCode(t, err, cnierr.InvalidConfiguration, "prevResult")
		n.nothingLeft()
	})
}

func TestMTU(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		row, file string
		conf      []any
		code      cnierr.Code
		want      int
	}{
		{"Network/9 file used when mtu is 0", "1400\n", nil, 0, 1400},
		{"Network/9 mtu wins", "1400", []any{"mtu", 1300}, 0, 1300},
		{"Network/10 garbage fails", "fast", []any{"mtu", 1300}, cnierr.InputOutput, 0},
		{"Network/10 negative fails", "-1", nil, cnierr.InputOutput, 0},
		{"Network/10 absent", "", nil, 0, 0},
		{"Network/10 absent and required", "", []any{"require_mtu_file", true}, cnierr.TryAgainLater, 0},
	} {
		t.Run(test.row, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if test.file != "" {
				if err := os.WriteFile(n.plugin.MTUFile, []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			result, err := n.runAdd(n.call(invocation.Add, n.config(test.conf...)))
			if test.code != 0 {
				wantCode(t, err, test.code, n.plugin.MTUFile)
				n.nothingLeft()
				return
			}
			if got := n.result(result, err).Interfaces[1].Mtu; got != test.want || n.dataplane.requests[0].MTU != test.want {
				t.Errorf("mtu %d, want %d", got, test.want)
			}
		})
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	const script = `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.5/24","gateway":"10.9.0.1"}]}'
exit 0`
	ipam := map[string]any{"type": "host-local", "routes": []any{
		map[string]any{"dst": "10.0.0.0/8", "gw": "10.9.0.254"}, map[string]any{"gw": "10.9.0.254"}, map[string]any{"dst": "fd00:1::/64"},
	}}
	for _, test := range []struct {
		row     string
		change  func(*invocation.Call)
		members []any
		want    []string
	}{
		{"Network/40 replace the defaults", inPod, []any{"ipam", ipam}, []string{"10.0.0.0/8", "fd00:1::/64"}},
		{"Network/40 beside the defaults", inPod, []any{"ipam", ipam, "include_default_routes", true}, []string{"0.0.0.0/0", "::/0", "10.0.0.0/8", "fd00:1::/64"}},
		{"Network/40 defaults", inPod, []any{"ipam", map[string]any{"type": "host-local"}}, []string{"0.0.0.0/0", "::/0"}},
		{"other orchestrators get the defaults", func(*invocation.Call) {}, []any{"ipam", ipam}, []string{"0.0.0.0/0", "::/0"}},
	} {
		t.Run(test.row, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.install("host-local", script)
			conf := append([]any{"cniVersion", "1.0.0"}, test.members...)
			if _, err := n.runAdd(n.call(invocation.Add, n.config(conf...), test.change)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, route := range n.dataplane.requests[0].Routes {
				got = append(got, route.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("routes %v, want %v", got, test.want)
			}
		})
	}
	for name, dst := range map[string]any{"not a string": 1, "not a CIDR": "10.0.0.1"} {
		t.Run("Network/41 dst "+name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.install("host-local", script)
			bad := map[string]any{"type": "host-local", "routes": []any{map[string]any{"dst": dst}}}
			_, err := n.runAdd(n.call(invocation.Add, n.config("ipam", bad), inPod))
			wantCode(t, err, cnierr.InvalidConfiguration, "ipam.routes[0].dst")
			n.nothingLeft()
		})
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*invocation.Call){inPod, func(*invocation.Call) {}} {
		n := newNode(t)
		n.add(change, container("first"))
		for _, step := range []struct {
			name string
			do   func()
			want int
		}{
			{"ADD, steady state", func() { n.add(change, container("second")) }, 4},
			{"DEL, steady state", func() { n.del(change, container("second")) }, 4},
			{"STATUS", func() {
				if err := n.plugin.Status(deadline(t), n.call(invocation.Status, n.config())); err != nil {
					t.Error(err)
				}
			}, 1},
		} {
			n.store.ForgetCalls()
			step.do()
			if got := len(n.store.Calls()); got != step.want {
				t.Errorf("%s: %d calls of the datastore, want %d: %v", step.name, got, step.want, n.store.Calls())
			}
		}
	}
}

func TestIPAMPluginMissing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := os.Remove(filepath.Join(n.bin, "calico-ipam")); err != nil {
		t.Fatal(err)
	}
	_, err := n.runAdd(n.call(invocation.Add, n.config()))
	wantCode(t, err, cnierr.InvalidConfiguration, "calico-ipam", n.bin)
	wantCode(t, n.plugin.Status(deadline(t), n.call(invocation.Status, n.config())), cnierr.NotAvailable, "calico-ipam")
}

var _ dataplane.Dataplane = (*fakeDataplane)(nil)

func TestNoDataplane(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.plugin.GOOS = "windows"
	n.plugin.Dataplane = func(*session.Session) dataplane.Dataplane { return nil }
	_, err := n.runAdd(n.call(invocation.Add, n.config()))
	wantCode(t, err, cnierr.UnsupportedField, "windows")
	n.nothingLeft()
}
