package ipamplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	"calico-cni/pkg/hostlock"
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
	n := &node{t: t, store: memory.New(memory.Options{}), dir: t.TempDir(), now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
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

func TestAdd(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/49 routes, one per address, IPv4 first", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		result, err := n.runAdd(n.call(invocation.Add, n.config("ipam.assign_ipv6", "true")))
		if err != nil {
			t.Fatal(err)
		}
		converted, err := types100.NewResultFromResult(result)
		if err != nil {
			t.Fatal(err)
		}
		if len(converted.IPs) != 2 || len(converted.Routes) != 2 || converted.IPs[0].Address.String() != "10.77.0.0/26" ||
			!strings.HasSuffix(converted.IPs[1].Address.String(), "/122") {
			t.Fatalf("result %v", converted)
		}
		for i, ip := range converted.IPs {
			if route := converted.Routes[i]; route.Dst.String() != ip.Address.String() || route.GW != nil {
				t.Errorf("route %v of address %v", route, ip)
			}
		}
	})
	t.Run("stdout closed: nothing stays taken", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		call := n.call(invocation.Add, n.config())
		call.Deliver = func(types.Result) error { return cnierr.New(cnierr.InputOutput, "broken pipe") }
		wantCode(t, n.plugin.Add(deadline(t), call), cnierr.InputOutput, "broken pipe")
		if held := n.allocated(); len(held) > 0 {
			t.Errorf("allocated are still %v", held)
		}
	})
	t.Run("IPAM/50 lock file in an unwritable directory", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		file := filepath.Join(n.dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.mustAdd("ipam_lock_file", filepath.Join(file, "ipam.lock"))
		if !strings.Contains(n.stderr.String(), "IPAM lock") {
			t.Errorf("nothing was logged: %s", n.stderr.String())
		}
	})
	t.Run("IPAM/51 node missing", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		_, err := n.add(n.call(invocation.Add, n.config("nodename", "stranger")))
		wantCode(t, err, cnierr.NodeUnknown, "stranger")
	})
	t.Run("IPAM/48 IPv6 exhausted: IPv4 is released", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.store.Uproot("/calico/resources/v3/projectcalico.org/ippools/pods6")
		n.pool("tiny6", "fd00:78::/128", 128)
		n.mustAdd("ipam.assign_ipv4", "false", "ipam.assign_ipv6", "true")
		call := n.call(invocation.Add, n.config("ipam.assign_ipv6", "true"))
		call.ContainerID = "c2"
		_, err := n.add(call)
		wantCode(t, err, cnierr.AddressesExhausted, "failed to request IPv6 addresses", "Assigned 0 out of 1 requested IPv6 addresses")
		if held := n.allocated(); len(held) != 1 || held["net.c1"] != 1 {
			t.Errorf("allocated %v", held)
		}
	})
	t.Run("a failed ADD keeps the addresses of an earlier one", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		n.store.Uproot("/calico/resources/v3/projectcalico.org/ippools/pods6")
		if _, err := n.add(n.call(invocation.Add, n.config("ipam.assign_ipv6", "true"))); err == nil {
			t.Fatal("ADD succeeded")
		}
		if held := n.allocated(); held["net.c1"] != 1 {
			t.Errorf("allocated %v", held)
		}
	})
	t.Run("neither family", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		_, err := n.add(n.call(invocation.Add, n.config("ipam.assign_ipv4", "false")))
		wantCode(t, err, cnierr.InvalidConfiguration, "assign_ipv4", "assign_ipv6")
	})
	t.Run("IP= names the address", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		call := n.call(invocation.Add, n.config())
		call.Args = "IgnoreUnknown=1;IP=10.77.0.200"
		if addresses, err := n.add(call); err != nil || len(addresses) != 1 || addresses[0] != "10.77.0.200/32" {
			t.Errorf("addresses %v, %v", addresses, err)
		}
		call.Args = "IgnoreUnknown=1;IP=10.99.0.1"
		_, err := n.add(call)
		wantCode(t, err, cnierr.AddressOutsidePools, "The provided IP address is not in a configured pool")
		call.Args, call.ContainerID = "IgnoreUnknown=1;IP=10.77.0.200", "c2"
		_, err = n.add(call)
		wantCode(t, err, cnierr.AddressTaken, "10.77.0.200")
	})
}

func TestPools(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		row     string
		members []any
		want    string
		code    cnierr.Code
		word    string
	}{
		{"by name", []any{"ipam.ipv4_pools", []string{"second"}}, "10.78.0.", 0, ""},
		{"by CIDR", []any{"ipam.ipv4_pools", []string{"10.78.0.0/24"}}, "10.78.0.", 0, ""},
		{"by CIDR with host bits", []any{"ipam.ipv4_pools", []string{"10.78.0.9/24"}}, "10.78.0.", 0, ""},
		{"unknown name", []any{"ipam.ipv4_pools", []string{"third"}}, "", cnierr.InvalidConfiguration, `error parsing pool "third": invalid CIDR address: third`},
		{"wrong family", []any{"ipam.ipv4_pools", []string{"fd00:77::/112"}}, "", cnierr.InvalidConfiguration, `"fd00:77::" isn't a IPv4 address`},
		{"IPAM/40 not a pool", []any{"ipam.ipv4_pools", []string{"10.78.0.0/25"}}, "", cnierr.NoPool, "the given pool (10.78.0.0/25) does not exist, or is not enabled"},
	} {
		t.Run(test.row, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.pool("second", "10.78.0.0/24", 26)
			n.store.ForgetCalls()
			addresses, err := n.add(n.call(invocation.Add, n.config(test.members...)))
			if test.code != 0 {
				wantCode(t, err, test.code, test.word)
				return
			}
			if err != nil || !strings.HasPrefix(addresses[0], test.want) {
				t.Fatalf("addresses %v, %v", addresses, err)
			}
			if calls := len(n.store.Calls()); calls > 3 {
				t.Errorf("%d calls for a first claim: %v", calls, n.store.Calls())
			}
		})
	}
}

func TestDel(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/24 twice", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		for range 2 {
			if err := n.del(); err != nil {
				t.Fatal(err)
			}
		}
		if held := n.allocated(); len(held) != 0 || n.notes() != 0 {
			t.Errorf("allocated %v, %d notes", held, n.notes())
		}
	})
	t.Run("IPAM/25 neither handle", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		if err := n.del(); err != nil {
			t.Error(err)
		}
	})
	t.Run("IPAM/26 the handle of before v3", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		for _, path := range []string{"/calico/ipam/v2/handle/net.c1", "/calico/ipam/v2/assignment/ipv4/block/10.77.0.0-26"} {
			value, ok := n.store.Raw(path)
			if !ok {
				t.Fatalf("%s is missing", path)
			}
			n.store.Uproot(path)
			n.store.Plant(strings.Replace(path, "net.c1", "shop.web-0", 1), strings.ReplaceAll(value, "net.c1", "shop.web-0"))
		}
		call := n.call(invocation.Del, n.config())
		call.Args = "IgnoreUnknown=1;K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop"
		if err := n.plugin.Del(deadline(t), call); err != nil {
			t.Fatal(err)
		}
		if held := n.allocated(); len(held) != 0 {
			t.Errorf("allocated %v", held)
		}
	})
	t.Run("another container's handle may spell like the one of before v3", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd() // handle net.c1
		pod := n.call(invocation.Del, n.config())
		pod.ContainerID, pod.Args = "c2", "IgnoreUnknown=1;K8S_POD_NAME=c1;K8S_POD_NAMESPACE=net"
		other := n.call(invocation.Del, n.config("name", "other"))
		other.ContainerID = "net.c1"
		// The pod may be another node's, whose notes are not here.
		for _, call := range []*invocation.Call{other, pod} {
			if err := n.plugin.Del(deadline(t), call); err != nil {
				t.Fatal(err)
			}
			if held := n.allocated(); held["net.c1"] != 1 {
				t.Fatalf("DEL of %s freed another container's address: %v", call.ContainerID, held)
			}
			if err := os.RemoveAll(n.plugin.NotesDirectory); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("a bad IP= or a placeholder does not keep it from releasing", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		call := n.call(invocation.Del, n.config("type", "ptp", "log_file_path", "__LOG__", "device_type", "ipvlan"))
		call.Args = "IP=nonsense"
		if err := n.plugin.Del(deadline(t), call); err != nil {
			t.Fatal(err)
		}
		if len(n.allocated()) != 0 || !strings.Contains(n.stderr.String(), "log_file_path") {
			t.Errorf("allocated %v, log %s", n.allocated(), n.stderr.String())
		}
	})
	t.Run("datastore down", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.mustAdd()
		n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
		wantCode(t, n.del(), cnierr.TryAgainLater, "connection refused")
		if n.notes() != 1 {
			t.Error("the note is gone although the address is not")
		}
	})
}

func TestWindowsRules(t *testing.T) {
	t.Parallel()
	windows := func(t *testing.T, strict bool) *node {
		n := newNode(t)
		n.plugin.GOOS = "windows"
		n.store.Plant("/calico/ipam/v2/config", fmt.Sprintf(`{"strict_affinity":%v,"auto_allocate_blocks":true}`, strict))
		return n
	}
	t.Run("IPAM/55 strict affinity off: ADD refused, DEL works", func(t *testing.T) {
		t.Parallel()
		n := windows(t, true)
		n.mustAdd()
		n.store.Plant("/calico/ipam/v2/config", `{"auto_allocate_blocks":true}`)
		_, err := n.add(n.call(invocation.Add, n.config()))
		wantCode(t, err, cnierr.StrictAffinityNeeded, "global strict affinity should not be false for Windows node")
		for range 2 {
			if err := n.del(); err != nil {
				t.Fatal(err)
			}
		}
		if len(n.allocated()) != 0 {
			t.Errorf("allocated %v", n.allocated())
		}
	})
	t.Run("IPAM/56 the first address is behind the reserve", func(t *testing.T) {
		t.Parallel()
		if got := windows(t, true).mustAdd(); got[0] != "10.77.0.3/26" {
			t.Errorf("address %v", got)
		}
	})
	t.Run("a requested address keeps the block's mask", func(t *testing.T) {
		t.Parallel()
		n := windows(t, true)
		call := n.call(invocation.Add, n.config())
		call.Args = "IP=10.77.0.70"
		if got, err := n.add(call); err != nil || got[0] != "10.77.0.70/26" {
			t.Errorf("address %v, %v", got, err)
		}
	})
	t.Run("IPAM/62 a second block with windows_use_single_network", func(t *testing.T) {
		t.Parallel()
		n := windows(t, true)
		n.store.Uproot("/calico/resources/v3/projectcalico.org/ippools/pods")
		n.pool("small", "10.79.0.0/24", 29)
		for i := range 4 {
			call := n.call(invocation.Add, n.config("windows_use_single_network", true))
			call.ContainerID = fmt.Sprintf("c%d", i)
			if _, err := n.add(call); err != nil {
				t.Fatal(err)
			}
		}
		_, err := n.add(n.call(invocation.Add, n.config("windows_use_single_network", true)))
		wantCode(t, err, cnierr.BlockLimit, "cannot allocate new block due to per host block limit")
	})
}

func TestParallelAdds(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/53 8 different addresses, one block", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		var group sync.WaitGroup
		errs := make(chan error, 8)
		for i := range 8 {
			group.Go(func() {
				call := n.call(invocation.Add, n.config())
				call.ContainerID = fmt.Sprintf("c%d", i)
				plugin := *n.plugin
				plugin.Stderr = &bytes.Buffer{}
				call.Deliver = func(types.Result) error { return nil }
				errs <- plugin.Add(deadline(t), call)
			})
		}
		group.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		answers, err := n.store.Read(deadline(t), datastore.ListBlocks{Family: model.IPv4})
		if err != nil {
			t.Fatal(err)
		}
		if len(n.allocated()) != 8 || len(answers[0].Entries) != 1 {
			t.Errorf("allocated %v in %d blocks", n.allocated(), len(answers[0].Entries))
		}
	})
}

func TestGC(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, id := range []string{"a", "b"} {
		call := n.call(invocation.Add, n.config())
		call.ContainerID = id
		if _, err := n.add(call); err != nil {
			t.Fatal(err)
		}
	}
	foreign := n.call(invocation.Add, n.config("name", "net.b"))
	if _, err := n.add(foreign); err != nil {
		t.Fatal(err)
	}
	n.now = n.now.Add(time.Second)
	gc := func(members ...any) error {
		return n.plugin.GC(deadline(t), n.call(invocation.GC, n.config(members...)))
	}
	if err := gc(); err != nil || len(n.allocated()) != 3 {
		t.Fatalf("both keys absent: %v, allocated %v", err, n.allocated())
	}
	if err := gc("cni.dev/attachments", []any{map[string]any{"containerID": "a", "ifname": "eth0"}}); err != nil {
		t.Fatal(err)
	}
	if held := n.allocated(); len(held) != 2 || held["net.a"] != 1 || held["net.b.c1"] != 1 {
		t.Errorf("allocated %v", held)
	}
	if n.notes() != 2 {
		t.Errorf("%d notes, want 2", n.notes())
	}
	t.Run("the lock is held: nothing is done", func(t *testing.T) {
		lock, err := hostlock.Acquire(deadline(t), filepath.Join(n.dir, "run", "ipam.lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		err = n.plugin.GC(ctx, n.call(invocation.GC, n.config("cni.dev/attachments", nil)))
		wantCode(t, err, cnierr.LockNotObtained, "IPAM lock")
		if len(n.allocated()) != 2 {
			t.Errorf("allocated %v", n.allocated())
		}
	})
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

func TestNotesLeadToDeadHandles(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.store.Plant("/calico/ipam/v2/handle/net.dead", `{"block":{"10.77.0.0/26":1},"deleted":false}`)
	n.store.Plant("/calico/ipam/v2/handle/net.elsewhere", `{"block":{"10.77.0.0/26":1},"deleted":false}`)
	if err := os.MkdirAll(n.plugin.NotesDirectory, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		filepath.Base(notePath("", "net.dead")):      "net.dead",
		filepath.Base(notePath("", "net.elsewhere")): "net.forged",
		"datastore.db": "net.elsewhere",
	} {
		if err := os.WriteFile(filepath.Join(n.plugin.NotesDirectory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.plugin.GC(deadline(t), n.call(invocation.GC, n.config("cni.dev/attachments", nil))); err != nil {
		t.Fatal(err)
	}
	if _, left := n.store.Raw("/calico/ipam/v2/handle/net.dead"); left {
		t.Error("the dead handle with a note is left")
	}
	if _, left := n.store.Raw("/calico/ipam/v2/handle/net.elsewhere"); !left {
		t.Error("a handle without a note was deleted: it may be another node's")
	}
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
