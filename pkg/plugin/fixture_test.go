package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/session"
	"calico-cni/pkg/workload"
)

// fakeDataplane keeps links in memory and fails on demand.
type fakeDataplane struct {
	mu    sync.Mutex
	links map[string]workload.Attachment
	// inPod are the interfaces of pods, "<namespace> <interface>".
	inPod map[string]bool
	// fail maps a method's name to the error it returns.
	fail map[string]error
	// called lists the methods in order; requests are those of Add.
	called      []string
	requests    []dataplane.Request
	differences []string
	// during runs inside Add.
	during func()
}

func newFakeDataplane() *fakeDataplane {
	return &fakeDataplane{links: map[string]workload.Attachment{}, inPod: map[string]bool{}, fail: map[string]error{}}
}

func (f *fakeDataplane) enter(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called = append(f.called, method)
	return f.fail[method]
}

func (f *fakeDataplane) Validate(string) error { return f.enter("Validate") }

func (f *fakeDataplane) HasInterface(namespace, ifName string) (bool, error) {
	return f.inPod[namespace+" "+ifName], f.enter("HasInterface")
}

func (f *fakeDataplane) Add(_ context.Context, r dataplane.Request) (dataplane.Link, error) {
	if err := f.enter("Add"); err != nil {
		return dataplane.Link{}, err
	}
	if f.during != nil {
		f.during()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r)
	name, second := r.HostInterface, false
	if owner, taken := f.links[name]; taken && owner != r.Attachment && owner.ContainerID == r.Attachment.ContainerID {
		name, second = r.SecondInterface, true
	}
	f.links[name] = r.Attachment
	f.inPod[r.Namespace+" "+r.Attachment.IfName] = true
	return dataplane.Link{HostInterface: name, Index: 7, MAC: "02:00:00:00:00:07", Second: second}, nil
}

func (f *fakeDataplane) Confirm(context.Context, dataplane.Link) error { return f.enter("Confirm") }

func (f *fakeDataplane) Undo(ctx context.Context, link dataplane.Link) error {
	if err := errors.Join(f.enter("Undo"), ctx.Err()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.links, link.HostInterface)
	return nil
}

func (f *fakeDataplane) Delete(_ context.Context, r dataplane.Removal) error {
	if err := f.enter("Delete"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.links, func(_ string, owner workload.Attachment) bool { return owner == r.Attachment })
	delete(f.inPod, r.Namespace+" "+r.Attachment.IfName)
	return nil
}

func (f *fakeDataplane) Differences(context.Context, dataplane.Expectation) ([]string, error) {
	return slices.Clone(f.differences), f.enter("Differences")
}

func (f *fakeDataplane) Owned(context.Context) ([]dataplane.Found, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var owned []dataplane.Found
	for _, name := range slices.Sorted(maps.Keys(f.links)) {
		alias := f.links[name].Alias()
		owner, _ := workload.ParseAlias(alias)
		owned = append(owned, dataplane.Found{HostInterface: name, Index: 7, Alias: alias, Owner: owner})
	}
	return owned, f.fail["Owned"]
}

func (f *fakeDataplane) OwnedBy(ctx context.Context, a workload.Attachment) ([]dataplane.Found, error) {
	owned, err := f.Owned(ctx)
	return slices.DeleteFunc(owned, func(found dataplane.Found) bool {
		return !found.Owner.HasContainer(a.ContainerID) || !found.Owner.InNetwork(a.Network)
	}), err
}

func (f *fakeDataplane) Possible() error { return f.fail["Possible"] }

func (f *fakeDataplane) Tunnels(context.Context, dataplane.Link) ([]dataplane.Tunnel, error) {
	return nil, f.fail["Tunnels"]
}

func (f *fakeDataplane) Serves(context.Context, func(context.Context) (bool, error)) error {
	return f.fail["Serves"]
}

func (f *fakeDataplane) Remove(_ context.Context, found dataplane.Found) error {
	if err := f.enter("Remove"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.links, found.HostInterface)
	return nil
}

// fakeHost records what a node agent's stand-in was asked for.
type fakeHost struct {
	forwarding error
	masquerade []NATPool
	present    bool
	failAdd    error
}

func (h *fakeHost) Forwarding(ipv4, ipv6 bool) error {
	if ipv4 || ipv6 {
		return h.forwarding
	}
	return nil
}
func (h *fakeHost) EnableForwarding(context.Context, bool, bool) error { return h.failAdd }
func (h *fakeHost) EnsureMasquerade(_ context.Context, pools []NATPool) error {
	h.masquerade, h.present = pools, true
	return nil
}
func (h *fakeHost) MasqueradePresent(context.Context, []NATPool) (bool, error) { return h.present, nil }
func (h *fakeHost) RemoveMasquerade(context.Context) error                     { h.present = false; return nil }

// node is a host on which the plugin runs, with a store in memory.
type node struct {
	t         *testing.T
	store     *memory.Store
	dataplane *fakeDataplane
	host      *fakeHost
	plugin    *Plugin
	dir       string
	bin       string
	embedded  bool
	// undelivered is why the runtime cannot be told ADD's result.
	undelivered error
	// credentialsEnd is when the credentials for the datastore end.
	credentialsEnd time.Time
	stderr         strings.Builder
	now            time.Time
}

const nodeName = "worker-b"

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{
		t: t, store: memory.New(memory.Options{}), dataplane: newFakeDataplane(), host: &fakeHost{}, dir: t.TempDir(),
		now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
	}
	n.bin = filepath.Join(n.dir, "bin")
	n.install("calico-ipam", "")
	ready := true
	n.put(datastore.Step{
		create(model.KindClusterInformation, "default", &model.ClusterInformation{Metadata: model.Metadata{Name: "default"}, Ready: &ready}),
		create(model.KindNode, nodeName, &model.Node{Metadata: model.Metadata{Name: nodeName}}),
		create(model.KindIPPool, "pods", &model.IPPool{Metadata: model.Metadata{Name: "pods"}, RawCIDR: "10.77.0.0/24", BlockSize: 26}),
		create(model.KindIPPool, "pods6", &model.IPPool{Metadata: model.Metadata{Name: "pods6"}, RawCIDR: "fd00:77::/112", BlockSize: 122}),
	})
	n.plugin = &Plugin{
		Environment: session.Environment{
			Getenv: func(string) string { return "" }, Stderr: &n.stderr, GOOS: "linux",
			Now: func() time.Time { return n.now },
			Open: func(context.Context, *netconf.Config, string) (connect.Connection, error) {
				return connect.Connection{Store: kept{n.store}, API: n.store, Embedded: n.embedded, Credentials: "/tls/client.crt", CredentialsEnd: n.credentialsEnd}, nil
			},
		},
		Environ: os.Environ,
		MTUFile: filepath.Join(n.dir, "mtu"), StateDirectory: filepath.Join(n.dir, "state"),
		NotesDirectory: filepath.Join(n.dir, "notes"),
		SameBuild:      func(path string) bool { return filepath.Base(path) == "calico-ipam" },
		Dataplane:      func(*session.Session) dataplane.Dataplane { return n.dataplane },
		Host:           n.host,
	}
	return n
}

// kept outlives the sessions that close it.
type kept struct{ datastore.Store }

func (kept) Close() error { return nil }

func create(kind model.Kind, name string, value any) datastore.Mutation {
	return datastore.Put(model.ResourceKey{Kind: kind, Name: name}, value, datastore.Absent)
}

func (n *node) put(step datastore.Step) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := n.store.Write(ctx, step); err != nil {
		n.t.Fatal(err)
	}
}

// install puts an executable script into CNI_PATH. No process may be forked
// meanwhile: it would inherit the open file, which nobody could then execute.
func (n *node) install(name, script string) {
	n.t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.MkdirAll(n.bin, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.bin, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// config is the network configuration, changed by the members given.
func (n *node) config(members ...any) []byte {
	n.t.Helper()
	conf := map[string]any{
		"cniVersion": "1.1.0", "name": "net", "type": "calico", "nodename": nodeName, "nodename_file_optional": true,
		"ipam_lock_file": filepath.Join(n.dir, "ipam.lock"), "ipam": map[string]any{"type": "calico-ipam"},
	}
	for i := 0; i < len(members); i += 2 {
		conf[members[i].(string)] = members[i+1]
	}
	document, err := json.Marshal(conf)
	if err != nil {
		n.t.Fatal(err)
	}
	return document
}

// call is a call for container c1, changed as wanted.
func (n *node) call(verb invocation.Verb, stdin []byte, change ...func(*invocation.Call)) *invocation.Call {
	call := &invocation.Call{
		Verb: verb, ContainerID: "c1", Netns: "/ns/c1", IfName: "eth0", Args: "IgnoreUnknown=1", Path: n.bin, Stdin: stdin,
	}
	for _, c := range change {
		c(call)
	}
	return call
}

func inPod(call *invocation.Call) {
	call.Args = "IgnoreUnknown=1;K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop"
}

func container(id string) func(*invocation.Call) {
	return func(call *invocation.Call) { call.ContainerID, call.Netns = id, "/ns/"+id }
}

func ifName(name string) func(*invocation.Call) {
	return func(call *invocation.Call) { call.IfName = name }
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// runAdd runs ADD and returns what it delivered.
func (n *node) runAdd(call *invocation.Call) (result types.Result, err error) {
	call.Deliver = func(delivered types.Result) error {
		result = delivered
		return n.undelivered
	}
	err = n.plugin.Add(deadline(n.t), call)
	return result, err
}

func (n *node) add(change ...func(*invocation.Call)) *types100.Result {
	n.t.Helper()
	result, err := n.runAdd(n.call(invocation.Add, n.config(), change...))
	return n.result(result, err)
}

func (n *node) result(result types.Result, err error) *types100.Result {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("ADD: %v\n%s", err, n.stderr.String())
	}
	converted, err := types100.NewResultFromResult(result)
	if err != nil {
		n.t.Fatal(err)
	}
	return converted
}

func (n *node) del(change ...func(*invocation.Call)) {
	n.t.Helper()
	if err := n.plugin.Del(deadline(n.t), n.call(invocation.Del, n.config(), change...)); err != nil {
		n.t.Fatalf("DEL: %v\n%s", err, n.stderr.String())
	}
}

// wantCode checks an error's code and the words that its text must hold.
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

// entries answers a list.
func (n *node) entries(query datastore.Query) []datastore.Entry {
	n.t.Helper()
	answers, err := n.store.Read(deadline(n.t), query)
	if err != nil {
		n.t.Fatal(err)
	}
	return answers[0].Entries
}

// allocated lists the addresses that are in use, with their handles.
func (n *node) allocated() map[string]string {
	n.t.Helper()
	held := map[string]string{}
	for _, family := range []model.Family{model.IPv4, model.IPv6} {
		for _, entry := range n.entries(datastore.ListBlocks{Family: family}) {
			block := entry.Value.(*model.Block)
			for ordinal, index := range block.Allocations {
				if index != model.Free {
					held[block.Addr(ordinal).String()] = block.Attributes[index].HandleID
				}
			}
		}
	}
	return held
}

func (n *node) endpoints() map[string]*model.WorkloadEndpoint {
	n.t.Helper()
	found := map[string]*model.WorkloadEndpoint{}
	for _, entry := range n.entries(datastore.ListResources{Kind: model.KindWorkloadEndpoint}) {
		endpoint := entry.Value.(*model.WorkloadEndpoint)
		found[endpoint.Metadata.Name] = endpoint
	}
	return found
}

// nothingLeft checks that no trace of any container is left.
func (n *node) nothingLeft() {
	n.t.Helper()
	if held := n.allocated(); len(held) > 0 {
		n.t.Errorf("allocated are still %v", held)
	}
	if handles := n.entries(datastore.ListHandles{}); len(handles) > 0 {
		n.t.Errorf("handles are left: %v", handles[0].Key)
	}
	if endpoints := n.endpoints(); len(endpoints) > 0 {
		n.t.Errorf("endpoints are left: %v", slices.Sorted(maps.Keys(endpoints)))
	}
	if len(n.dataplane.links) > 0 {
		n.t.Errorf("links are left: %v", n.dataplane.links)
	}
	if notes, err := os.ReadDir(n.plugin.NotesDirectory); err == nil && len(notes) > 0 {
		n.t.Errorf("%d attachment notes are left", len(notes))
	}
}

// failWrites makes every write of an object of this kind fail.
func (n *node) failWrites(kind model.Kind) {
	n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if call.IsWrite() && strings.Contains(call.String(), string(kind)) {
			return memory.Down(call)
		}
		return nil
	}})
}
