package windows

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

// node is a simulated host with the data plane on it.
type node struct {
	t      *testing.T
	engine *hnssim.Engine
	plane  *Dataplane
	log    *logged
	// allowFindings: the test makes a mistake on purpose.
	allowFindings bool
}

// logged collects what was logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newNode is a fresh host; change adapts the options, of which the default is
// one VXLAN network.
func newNode(t *testing.T, change ...func(*Options)) *node {
	t.Helper()
	n := &node{t: t, engine: hnssim.New(), log: &logged{}}
	n.configure(change...)
	t.Cleanup(func() {
		if findings := n.engine.Findings(); len(findings) > 0 && !n.allowFindings {
			t.Errorf("the simulator found mistakes: %v", findings)
		}
		if n.engine.Locked() {
			t.Error("the network lock is still held")
		}
	})
	return n
}

// configure installs the configuration anew.
func (n *node) configure(change ...func(*Options)) {
	options := Options{
		Name: "Calico", Overlay: true, MACPrefix: "0E-2A", SingleNetwork: true,
		Service: n.engine.Service(), Host: n.engine.Host(), Pause: n.engine.Pause,
		Logger: slog.New(slog.NewTextHandler(n.log, nil)),
	}
	for _, c := range change {
		c(&options)
	}
	n.plane = New(options)
}

func l2bridge(o *Options) { o.Overlay = false }

func manyNetworks(o *Options) { o.SingleNetwork = false }

// modes runs a test in both modes.
func modes(t *testing.T, run func(*testing.T, func(*Options))) {
	for name, mode := range map[string]func(*Options){"overlay": func(*Options) {}, "l2bridge": l2bridge} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, mode)
		})
	}
}

// namespace makes a sandbox's namespace, as the runtime does.
func (n *node) namespace() string {
	n.t.Helper()
	made, err := n.engine.Service().CreateNamespace(deadline(n.t), hns.Namespace{Type: "Host", SchemaVersion: hns.Schema2()})
	if err != nil {
		n.t.Fatal(err)
	}
	return made.ID
}

func (n *node) removeNamespace(id string) {
	n.t.Helper()
	if err := n.engine.Delete(deadline(n.t), hnssim.Namespace, id); err != nil {
		n.t.Fatal(err)
	}
}

func pools() []dataplane.Pool {
	return []dataplane.Pool{{
		Name: "pods", CIDR: netip.MustParsePrefix("10.48.0.0/16"), NATOutgoing: true, IPIPMode: "Never", VXLANMode: "Always",
	}}
}

// request asks for container c with an address in a new namespace.
func (n *node) request(container, address string) dataplane.Request {
	n.t.Helper()
	prefix := netip.MustParsePrefix(address)
	return dataplane.Request{
		Attachment: workload.Attachment{Network: "Calico", ContainerID: container, IfName: "eth0"},
		Kubernetes: true, Namespace: n.namespace(), HostInterface: "cali0123456789a",
		Addresses: []netip.Addr{prefix.Addr()}, Prefixes: []netip.Prefix{prefix}, Pools: pools(),
	}
}

func (n *node) tryAdd(r dataplane.Request) (dataplane.Link, error) {
	return n.plane.Add(deadline(n.t), r)
}

func (n *node) add(container, address string) dataplane.Link {
	n.t.Helper()
	link, err := n.tryAdd(n.request(container, address))
	if err != nil {
		n.t.Fatalf("ADD of %s: %v\n%s", container, err, n.log)
	}
	return link
}

func (n *node) del(container string) {
	n.t.Helper()
	if err := n.plane.Delete(deadline(n.t), removal(container)); err != nil {
		n.t.Fatalf("DEL of %s: %v", container, err)
	}
}

func removal(container string) dataplane.Removal {
	return dataplane.Removal{Attachment: workload.Attachment{Network: "Calico", ContainerID: container, IfName: "eth0"}}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// networks are those of the host, by name.
func (n *node) networks() []hns.Network {
	n.t.Helper()
	found, err := n.engine.Service().Networks(deadline(n.t))
	if err != nil {
		n.t.Fatal(err)
	}
	slices.SortFunc(found, func(a, b hns.Network) int { return strings.Compare(a.Name, b.Name) })
	return found
}

func (n *node) networkNames() []string {
	var names []string
	for _, network := range n.networks() {
		names = append(names, network.Name)
	}
	return names
}

func (n *node) endpoints() []hns.Endpoint {
	n.t.Helper()
	found, err := n.engine.Service().Endpoints(deadline(n.t))
	if err != nil {
		n.t.Fatal(err)
	}
	slices.SortFunc(found, func(a, b hns.Endpoint) int { return strings.Compare(a.Name, b.Name) })
	return found
}

func (n *node) endpointNames() []string {
	var names []string
	for _, endpoint := range n.endpoints() {
		names = append(names, endpoint.Name)
	}
	return names
}

// endpoint is the one of a name.
func (n *node) endpoint(name string) hns.Endpoint {
	n.t.Helper()
	var found []hns.Endpoint
	for _, endpoint := range n.endpoints() {
		if endpoint.Name == name {
			found = append(found, endpoint)
		}
	}
	if len(found) != 1 {
		n.t.Fatalf("%d endpoints have the name %s; there are %v", len(found), name, n.endpointNames())
	}
	return found[0]
}

func (n *node) wantNames(got []string, want ...string) {
	n.t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		n.t.Errorf("there are %v, want %v", got, want)
	}
}

// sent are the documents of the calls of a name.
func (n *node) sent(call string) []string {
	var documents []string
	for _, c := range n.engine.Calls() {
		if c.Name == call {
			documents = append(documents, c.Document)
		}
	}
	return documents
}

// policies are the settings of an endpoint's policies of a type.
func policiesOf(endpoint hns.Endpoint, kind string) []string {
	var found []string
	for _, p := range endpoint.Policies {
		if p.Type == kind {
			found = append(found, string(p.Settings))
		}
	}
	return found
}

func wantJSON(t *testing.T, got, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	canonicalA, _ := json.Marshal(a)
	canonicalB, _ := json.Marshal(b)
	if !bytes.Equal(canonicalA, canonicalB) {
		t.Errorf("document\n%s\nwant\n%s", canonicalA, canonicalB)
	}
}

func wantCode(t *testing.T, err error, code cnierr.Code, words ...string) {
	t.Helper()
	if err == nil || cnierr.CodeOf(err) != code {
		t.Fatalf("error %v (code %d), want code %d", err, cnierr.CodeOf(err), code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not contain %q", err, word)
		}
	}
}

// wantUntouched checks that nothing of HNS was changed since the log was
// cleared.
func (n *node) wantUntouched() {
	n.t.Helper()
	for _, c := range n.engine.Changes() {
		n.t.Errorf("HNS was changed: %s %s %s", c.Name, c.ID, c.Document)
	}
}

func (n *node) wantLog(words ...string) {
	n.t.Helper()
	for _, word := range words {
		if !strings.Contains(n.log.String(), word) {
			n.t.Errorf("the log does not contain %q:\n%s", word, n.log)
		}
	}
}
