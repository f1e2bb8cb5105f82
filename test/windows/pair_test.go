//go:build wine && linux

package windows

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"calico-cni/test/etcdtest"
	"calico-cni/test/windows/wine"
	"calico-cni/windows/hnssim"
)

// build is the Windows that most tests have: Server 2022.
const build = 20348

// TestPair runs the pair's executables on one machine, each time on a fresh
// simulated host.
func TestPair(t *testing.T) {
	machine := wine.NewHost(t, build)
	for _, c := range []struct {
		name string
		test func(*testing.T, *wine.Host)
	}{
		{"Add and del", testAddAndDel},
		{"Full node", testFullNode},
		{"Many at once", testManyAtOnce},
		{"Verbs", testVerbs},
		{"Failures", testFailures},
		{"Foreign configuration", testForeignConfiguration},
		{"Cost", testCost},
		{"Start", testStart},
		{"Processes", testProcesses},
		{"Flag switched", testFlagSwitched},
		{"Slow", testSlow},
		{"Late DEL", testLateDelete},
		{"Killed", testKilled},
		{"Install", testInstall},
		{"On a node", testOnNode},
		{"Shell", testShell},
		{"hcn", testHCN},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, machine) })
	}
}

func testAddAndDel(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	first := n.add("web-0")
	octets := [4]byte{}
	var bits int
	if _, err := fmt.Sscanf(first.IPs[0].Address, "%d.%d.%d.%d/%d", &octets[0], &octets[1], &octets[2], &octets[3], &bits); err != nil || bits != 26 {
		t.Errorf("the address is %s", first.IPs[0].Address)
	}
	if want := fmt.Sprintf("0E-2A-%02x-%02x-%02x-%02x", octets[0], octets[1], octets[2], octets[3]); first.Interfaces[1].MAC != want {
		t.Errorf("the MAC is %s, want %s", first.Interfaces[1].MAC, want)
	}
	n.add("web-1")
	if got := n.endpoints(); !slices.Equal(got, []string{"Calico_ep", "web-0_Calico", "web-1_Calico"}) {
		t.Errorf("endpoints %v", got)
	}
	n.silent("DEL", "web-0", nil)
	n.silent("DEL", "web-0", nil)
	n.silent("DEL", "web-1", nil)
	if got := n.endpoints(); !slices.Equal(got, []string{"Calico_ep"}) {
		t.Errorf("endpoints %v", got)
	}
	routes, err := n.engine.Host().Routes()
	if err != nil || len(routes) != 3 {
		t.Errorf("routes %v, %v: those to the metadata must be as before", routes, err)
	}
}

// refusal is the error object that a plugin prints.
type refusal struct {
	CNIVersion string
	Code       uint
	Msg        string
}

// refused runs an ADD that must fail with a code, and without a change of HNS.
func (n *node) refused(container string, members map[string]any, code uint, words ...string) {
	n.Helper()
	n.sandbox(container)
	n.engine.ClearLog()
	got := n.call("ADD", container, members)
	var out refusal
	if err := json.Unmarshal([]byte(got.Stdout), &out); err != nil || got.Exit != 1 || out.Code != code || out.CNIVersion != "1.1.0" {
		n.Errorf("ADD: exit %d\n%s\n%s", got.Exit, got.Stdout, got.Stderr)
	}
	for _, word := range words {
		if !strings.Contains(out.Msg, word) {
			n.Errorf("the message %q does not contain %q", out.Msg, word)
		}
	}
	for _, c := range n.engine.Changes() {
		n.Errorf("HNS was changed: %s %s", c.Name, c.Document)
	}
}

// testFullNode counts the pods of a /26, on etcd.
func testFullNode(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	server := etcdtest.Start(t, etcdtest.Options{})
	seedEtcd(t, server)
	n.conf["datastore_type"], n.conf["etcd_endpoints"] = "etcdv3", server.Endpoint
	n.conf["nodename_file_optional"] = true
	delete(n.conf, "pools")

	ordinals := map[int]int{}
	for i := range 60 {
		out := n.add(fmt.Sprintf("web-%d", i))
		address := netip.MustParsePrefix(out.IPs[0].Address)
		ordinals[int(address.Addr().As4()[3]-address.Masked().Addr().As4()[3])]++
	}
	for ordinal := 3; ordinal <= 62; ordinal++ {
		if ordinals[ordinal] != 1 {
			t.Errorf("%d pods have ordinal %d", ordinals[ordinal], ordinal)
		}
	}
	n.refused("web-60", nil, 103, "per host block limit")
	for i := range 60 {
		n.silent("DEL", fmt.Sprintf("web-%d", i), nil)
	}
	if got := n.endpoints(); !slices.Equal(got, []string{"Calico_ep"}) {
		t.Errorf("endpoints %v", got)
	}
	n.add("web-0")
}

func TestBuilds(t *testing.T) {
	for build, vxlan := range map[int]bool{17134: false, 17763: true, 26100: true} {
		t.Run(fmt.Sprint(build), func(t *testing.T) {
			machine := wine.NewHost(t, build)
			n := newNode(t, machine, build)
			if vxlan {
				n.add("web-0")
			} else {
				n.refused("web-0", nil, 117, fmt.Sprint(build), "17763")
			}
			n = newNode(t, machine, build)
			n.conf["mode"] = ""
			n.add("web-0")
			if got := n.engine.ForwardingOn(); len(got) != 2 {
				t.Errorf("interfaces %v forward", got)
			}
		})
	}
}

func testManyAtOnce(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	n.add("first")
	n.silent("DEL", "first", nil)
	var all sync.WaitGroup
	for i := range 20 {
		n.sandbox(fmt.Sprintf("web-%d", i))
	}
	for i := range 20 {
		all.Go(func() { n.add(fmt.Sprintf("web-%d", i)) })
	}
	all.Wait()
	if got := n.endpoints(); len(got) != 21 {
		t.Errorf("%d endpoints: %v", len(got), got)
	}
	made := 0
	for _, c := range n.engine.Calls() {
		if c.Name == "CreateNetwork" {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d networks were made", made)
	}
}

// testVerbs goes through the other verbs, and a boot that wipes HNS.
func testVerbs(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	n.silent("STATUS", "web-0", nil)
	added := n.call("ADD", "web-0", nil)
	var previous map[string]any
	if err := json.Unmarshal([]byte(added.Stdout), &previous); err != nil {
		t.Fatalf("%v: %s %s", err, added.Stdout, added.Stderr)
	}
	n.silent("CHECK", "web-0", map[string]any{"prevResult": previous})
	n.silent("STATUS", "web-0", nil)
	n.add("web-1")
	n.silent("GC", "web-0", map[string]any{"cni.dev/valid-attachments": []any{map[string]any{"containerID": "web-1", "ifname": "eth0"}}})
	if got := n.endpoints(); !slices.Equal(got, []string{"Calico_ep", "web-1_Calico"}) {
		t.Errorf("endpoints %v", got)
	}
	if got := n.call("CHECK", "web-0", map[string]any{"prevResult": previous}); got.Exit != 1 || !strings.Contains(got.Stdout, "web-0_Calico is missing") {
		t.Errorf("CHECK: exit %d, %s", got.Exit, got.Stdout)
	}

	n.engine.Wipe()
	if got := n.call("STATUS", "web-0", nil); got.Exit != 1 || !strings.Contains(got.Stdout, `"code": 51`) {
		t.Errorf("STATUS after a boot: exit %d, %s", got.Exit, got.Stdout)
	}
	clear(n.netns)
	n.silent("DEL", "web-1", nil)
	n.add("web-1")
	if got := n.endpoints(); !slices.Equal(got, []string{"Calico_ep", "web-1_Calico"}) {
		t.Errorf("endpoints %v", got)
	}
}

// testFailures makes each call of HNS that changes something fail once, before
// and after its work. That every call may fail is tested without Wine.
func testFailures(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	n.sandbox("web-0")
	n.engine.ClearLog()
	n.add("web-0")
	calls := n.engine.Calls()
	n.silent("DEL", "web-0", nil)
	for at, call := range calls {
		for _, after := range []bool{false, true} {
			if call.Changes() {
				n.failAt(at, call.Name, after)
			}
		}
	}
}

// failAt runs a first ADD of which one call fails, and repeats it.
func (n *node) failAt(at int, name string, after bool) {
	n.Helper()
	n.engine.Wipe()
	clear(n.netns)
	n.sandbox("web-0")
	n.engine.Inject(hnssim.Fault{Skip: at, Times: 1, Code: 0x80070015, After: after})
	failed := n.call("ADD", "web-0", nil)
	n.engine.ClearFaults()
	if left := n.endpoints(); failed.Exit != 0 && slices.Contains(left, "web-0_Calico") {
		n.Errorf("call %d (%s): left are %v", at, name, left)
	}
	n.add("web-0")
	n.silent("DEL", "web-0", nil)
	if left := n.endpoints(); !slices.Equal(left, []string{"Calico_ep"}) {
		n.Errorf("call %d (%s): after DEL %v are left", at, name, left)
	}
}

// testForeignConfiguration is one as win-overlay's users have: another IPAM
// plugin, policies of schema 1, a key that is not known, and no datastore.
func testForeignConfiguration(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	n.wine.InstallHostLocal(t)
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": "vxlan0", "type": "calico", "mode": "vxlan", "nodename": "win-1", "endpointMacPrefix": "0E-2A",
		"windows_use_single_network": true,
		"ipam":                       map[string]any{"type": "host-local", "subnet": "10.48.9.0/24"},
		"policies": []any{
			map[string]any{"Name": "EndpointPolicy", "Value": map[string]any{"Type": "OutBoundNAT", "ExceptionList": []string{"10.96.0.0/12"}}},
			map[string]any{"Name": "EndpointPolicy", "Value": map[string]any{"Type": "ROUTE", "DestinationPrefix": "10.96.0.0/12", "NeedEncap": true}},
			map[string]any{"Name": "Other", "Value": "ignored"},
		},
	}
	n.conf = conf
	out := n.add("web-0")
	if out.IPs[0].Address != "10.48.9.3/24" {
		t.Errorf("the address is %s", out.IPs[0].Address)
	}
	found, err := n.engine.Service().EndpointsByName(t.Context(), "web-0_vxlan0")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	kinds := map[string]string{}
	for _, p := range found[0].Policies {
		kinds[p.Type] = string(p.Settings)
	}
	want := map[string]string{
		"OutBoundNAT":     `{"Exceptions":["10.96.0.0/12","172.20.32.0/19"]}`,
		"SDNRoute":        `{"DestinationPrefix":"10.96.0.0/12","NeedEncap":true}`,
		"ProviderAddress": `{"ProviderAddress":"172.20.41.103"}`,
		"ACL":             `{"Protocols":"256","Action":"Block","Direction":"In","RuleType":"Switch","Priority":65500}`,
	}
	if !maps.Equal(kinds, want) {
		t.Errorf("policies %v", kinds)
	}
	n.silent("DEL", "web-0", nil)
}

// testShell runs the tests of the thin shell, which need Windows.
func testShell(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	var got wine.Result
	n.engine.Elsewhere(func() {
		got = n.wine.RunTests(t.Context(), t, wine.Tests{Package: "./windows/node", Port: n.server.Port(), Environment: map[string]string{"WANT_BUILD": fmt.Sprint(build)}})
	})
	if got.Exit != 0 {
		t.Errorf("exit %d\n%s\n%s", got.Exit, got.Stdout, got.Stderr)
	}
	for _, name := range []string{"TestNotFound", "TestRefusal", "TestHost", "TestLock"} {
		if !strings.Contains(got.Stdout, "--- PASS: "+name) {
			t.Errorf("%s did not run", name)
		}
	}
}
