package ipamplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/session"
)

// node is a host on which the IPAM plugin runs, with a store in memory.
type node struct {
	t      *testing.T
	store  *memory.Store
	plugin *Plugin
	dir    string
	stderr bytes.Buffer
	now    time.Time
	opened int
	mu     sync.Mutex
}

const nodeName = "worker-b"

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeOn(t, memory.New(memory.Options{}))
}

func newNodeOn(t *testing.T, store *memory.Store) *node {
	t.Helper()
	n := &node{t: t, store: store, dir: t.TempDir(), now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
	n.create(model.KindNode, nodeName, &model.Node{Metadata: model.Metadata{Name: nodeName}})
	n.pool("pods", "10.77.0.0/24", 26)
	n.pool("pods6", "fd00:77::/112", 122)
	n.plugin = &Plugin{
		Environment: session.Environment{
			Getenv: func(string) string { return "" }, Stderr: &n.stderr, GOOS: "linux",
			Now: func() time.Time { return n.now },
			Open: func(context.Context, *netconf.Config, string) (connect.Connection, error) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.opened++
				return connect.Connection{Store: n.store}, nil
			},
		},
		NotesDirectory: filepath.Join(n.dir, "notes"),
	}
	return n
}

func (n *node) create(kind model.Kind, name string, value any) {
	n.t.Helper()
	put := datastore.Put(model.ResourceKey{Kind: kind, Name: name}, value, datastore.Absent)
	if _, err := n.store.Write(deadline(n.t), datastore.Step{put}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) pool(name, cidr string, blockSize int) {
	n.t.Helper()
	n.create(model.KindIPPool, name, &model.IPPool{Metadata: model.Metadata{Name: name}, RawCIDR: cidr, BlockSize: blockSize})
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// config is the network configuration, with members of the whole and of ipam
// (those named "ipam.<member>") changed.
func (n *node) config(members ...any) []byte {
	n.t.Helper()
	ipam := map[string]any{"type": "calico-ipam"}
	conf := map[string]any{
		"cniVersion": "1.1.0", "name": "net", "type": "calico", "nodename": nodeName, "nodename_file_optional": true,
		"ipam_lock_file": filepath.Join(n.dir, "run", "ipam.lock"), "ipam": ipam,
	}
	for i := 0; i < len(members); i += 2 {
		if name, nested := strings.CutPrefix(members[i].(string), "ipam."); nested {
			ipam[name] = members[i+1]
		} else {
			conf[members[i].(string)] = members[i+1]
		}
	}
	document, err := json.Marshal(conf)
	if err != nil {
		n.t.Fatal(err)
	}
	return document
}

func (n *node) call(verb invocation.Verb, stdin []byte) *invocation.Call {
	return &invocation.Call{
		Verb: verb, ContainerID: "c1", Netns: "/ns/c1", IfName: "eth0", Args: "IgnoreUnknown=1", Path: "/bin", Stdin: stdin,
	}
}

// runAdd runs ADD and returns what it delivered.
func (n *node) runAdd(call *invocation.Call) (result types.Result, err error) {
	call.Deliver = func(delivered types.Result) error {
		result = delivered
		return nil
	}
	err = n.plugin.Add(deadline(n.t), call)
	return result, err
}

// add runs ADD and returns its addresses.
func (n *node) add(call *invocation.Call) ([]string, error) {
	result, err := n.runAdd(call)
	if err != nil {
		return nil, err
	}
	converted, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, ip := range converted.IPs {
		addresses = append(addresses, ip.Address.String())
	}
	return addresses, nil
}

func (n *node) mustAdd(members ...any) []string {
	n.t.Helper()
	addresses, err := n.add(n.call(invocation.Add, n.config(members...)))
	if err != nil {
		n.t.Fatal(err)
	}
	return addresses
}

func (n *node) del(members ...any) error {
	return n.plugin.Del(deadline(n.t), n.call(invocation.Del, n.config(members...)))
}

// allocated counts the addresses in use by handle.
func (n *node) allocated() map[string]int {
	n.t.Helper()
	held := map[string]int{}
	for _, family := range []model.Family{model.IPv4, model.IPv6} {
		answers, err := n.store.Read(deadline(n.t), datastore.ListBlocks{Family: family})
		if err != nil {
			n.t.Fatal(err)
		}
		for _, entry := range answers[0].Entries {
			block := entry.Value.(*model.Block)
			for ordinal := range block.Allocations {
				if holder := block.HolderOf(ordinal); holder != nil && holder.HandleID != model.ReserveHandleID {
					held[holder.HandleID]++
				}
			}
		}
	}
	return held
}

func (n *node) notes() int {
	entries, err := os.ReadDir(n.plugin.NotesDirectory)
	if err != nil {
		return 0
	}
	return len(entries)
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

// TestNoteIsNeverCut: whoever is killed while writing a note leaves none, or
// the one that was there.
func TestNoteIsNeverCut(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.mustAdd()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			if _, err := n.add(n.call(invocation.Add, n.config())); err != nil {
				t.Error(err)
			}
		}
	}()
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
		}
		content, err := os.ReadFile(notePath(n.plugin.NotesDirectory, "net.c1"))
		if err != nil || string(content) != "net.c1" {
			t.Fatalf("the note holds %q, %v", content, err)
		}
	}
	t.Run("one that was being written goes with DEL", func(t *testing.T) {
		if err := os.WriteFile(notePath(n.plugin.NotesDirectory, "net.c1")+unfinished, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := n.del(); err != nil || n.notes() != 0 {
			t.Errorf("%v, %d notes are left", err, n.notes())
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	result, err := n.runAdd(n.call(invocation.Add, n.config()))
	if err != nil {
		t.Fatal(err)
	}
	check := func(members ...any) error {
		return n.plugin.Check(deadline(t), n.call(invocation.Check, n.config(members...)))
	}
	if err := check("prevResult", result); err != nil {
		t.Error(err)
	}
	wantCode(t, check(), cnierr.InvalidConfiguration, "prevResult")
	if err := n.del(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, check("prevResult", result), cnierr.CheckFailed, "10.77.0.0", "net.c1")
}

func TestShared(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	call := n.call(invocation.Add, n.config())
	outer, err := session.Begin(n.plugin.Environment, "calico", call)
	if err != nil {
		t.Fatal(err)
	}
	if err := outer.Identify(); err != nil {
		t.Fatal(err)
	}
	n.plugin.Shared = &Shared{Session: outer, Locked: true}
	_, store, err := datastore.Prefetch(deadline(t), n.store, nil, n.plugin.AddQueries(call))
	if err != nil {
		t.Fatal(err)
	}
	n.store.ForgetCalls()
	n.plugin.Shared.Store = store
	if _, err := n.add(call); err != nil {
		t.Fatal(err)
	}
	if n.opened != 0 {
		t.Error("a second connection was opened")
	}
	for _, read := range n.store.Calls() {
		for _, query := range read.Queries {
			if strings.Contains(query.String(), "IPPool") {
				t.Errorf("what was read already is read again: %v", read)
			}
		}
	}
}
