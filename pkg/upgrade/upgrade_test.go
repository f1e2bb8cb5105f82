package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/hostlock"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

const root = "/calico/resources/v3/projectcalico.org/"

// host is a node on which host-local has given addresses to pods.
type host struct {
	*testing.T
	store              *memory.Store
	directory, plugins string
	log                bytes.Buffer
	opened             int
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{T: t, store: memory.New(memory.Options{NonTransactional: true}), directory: filepath.Join(dir, "networks", "net"), plugins: filepath.Join(dir, "bin")}
	h.store.Plant(root+"nodes/worker-b", `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"worker-b"},"spec":{},"status":{"podCIDRs":["10.77.3.0/24"]}}`)
	h.store.Plant(root+"clusterinformations/default", `{"kind":"ClusterInformation","metadata":{"name":"default"},"spec":{"clusterGUID":"g","datastoreReady":true}}`)
	h.store.Plant(root+"ippools/pods", `{"kind":"IPPool","metadata":{"name":"pods"},"spec":{"cidr":"10.77.0.0/16","blockSize":26}}`)
	for name, address := range map[string]string{"web-0": "10.77.3.2", "web-1": "10.77.3.70"} {
		h.store.Plant(root+"pods/shop/"+name, fmt.Sprintf(
			`{"metadata":{"name":%q,"namespace":"shop"},"spec":{"nodeName":"worker-b"},"status":{"phase":"Running","podIP":%q}}`, name, address))
	}
	h.store.Plant(root+"pods/shop/elsewhere", `{"metadata":{"name":"elsewhere","namespace":"shop"},"spec":{"nodeName":"worker-c"},"status":{"podIP":"10.77.3.4"}}`)
	for name, content := range map[string]string{
		"10.77.3.2": "c1\r\neth0", "10.77.3.70": "c2\r\neth0", "10.77.3.3": "gone\r\neth0", "10.77.3.4": "c4", "last_reserved_ip.0": "10.77.3.70", "lock": "",
	} {
		h.write(filepath.Join(h.directory, name), content)
	}
	for _, plugin := range []string{"calico", "host-local", "calico-ipam"} {
		h.write(filepath.Join(h.plugins, plugin), "executable")
	}
	return h
}

func (h *host) write(path, content string) {
	h.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) upgrade(disk Disk) *Upgrade {
	return &Upgrade{
		Node: "worker-b", Directory: h.directory, Plugins: h.plugins, Log: slog.New(slog.NewTextHandler(&h.log, nil)), Disk: disk,
		Open: func(context.Context) (connect.Connection, error) {
			h.opened++
			return connect.Connection{Store: h.store}, nil
		},
	}
}

func (h *host) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	h.Cleanup(cancel)
	return ctx
}

// booked lists the addresses that are booked, with handle and owner.
func (h *host) booked() map[string]string {
	h.Helper()
	answers, err := h.store.Competitor().Read(h.context(), datastore.ListBlocks{Family: model.IPv4})
	if err != nil {
		h.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range answers[0].Entries {
		block := entry.Value.(*model.Block)
		for ordinal := range block.Allocations {
			if holder := block.HolderOf(ordinal); holder != nil {
				found[block.Addr(ordinal).String()] = fmt.Sprint(holder.HandleID, " ", holder.Owner)
			}
		}
	}
	return found
}

func (h *host) one(key model.Key) any {
	h.Helper()
	answers, err := h.store.Competitor().Read(h.context(), datastore.Get{Key: key})
	if err != nil || len(answers[0].Entries) != 1 {
		h.Fatalf("%s: %v, %v", key, answers, err)
	}
	return answers[0].Entries[0].Value
}

func (h *host) ready() bool {
	h.Helper()
	information := h.one(model.ResourceKey{Kind: model.KindClusterInformation, Name: "default"}).(*model.ClusterInformation)
	return information.Ready != nil && *information.Ready
}

// wantMoved demands that the node is moved completely.
func (h *host) wantMoved() {
	h.Helper()
	want := map[string]string{
		"10.77.3.1":  "ipip-tunnel-addr-worker-b map[node:worker-b type:ipipTunnelAddress]",
		"10.77.3.2":  "k8s-pod-network.c1 map[namespace:shop node:worker-b pod:web-0]",
		"10.77.3.70": "k8s-pod-network.c2 map[namespace:shop node:worker-b pod:web-1]",
	}
	if got := h.booked(); !maps.Equal(got, want) {
		h.Errorf("booked are %v, want %v", got, want)
	}
	if _, err := os.Stat(h.directory); !errors.Is(err, fs.ErrNotExist) {
		h.Errorf("host-local's directory is left: %v", err)
	}
	left, err := os.ReadDir(h.plugins)
	if err != nil || len(left) != 1 || left[0].Name() != "calico-ipam" {
		h.Errorf("the plugins left are %v, %v", left, err)
	}
	if !h.ready() {
		h.Error("the cluster is not ready")
	}
	node := h.one(model.ResourceKey{Kind: model.KindNode, Name: "worker-b"}).(*model.Node)
	if node.IPIPTunnel() != "10.77.3.1" {
		h.Errorf("the node's tunnel is %q", node.IPIPTunnel())
	}
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	watched := &watchedDisk{host: h}
	if err := h.upgrade(watched).Once(h.context()); err != nil {
		t.Fatal(err)
	}
	h.wantMoved()
	// The executables and four files; the lock goes with the directory.
	if watched.removed != 7 {
		t.Errorf("%d files were removed one by one", watched.removed)
	}
	released := ipam.New(h.store, ipam.Options{})
	if err := released.ReleaseByHandle(h.context(), "k8s-pod-network.c1"); err != nil || len(h.booked()) != 2 {
		t.Errorf("a pod's DEL: %v, booked are %v", err, h.booked())
	}
	if err := h.upgrade(nil).Once(h.context()); err != nil || h.opened != 1 {
		t.Errorf("again: %v, connected %d times", err, h.opened)
	}
}

// watchedDisk checks, before a file goes, what must hold then.
type watchedDisk struct {
	realDisk
	host    *host
	removed int
}

func (d *watchedDisk) Remove(path string) error {
	d.removed++
	if d.host.ready() {
		d.host.Errorf("%s is removed while plugins may work", path)
	}
	if filepath.Dir(path) == d.host.directory {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if lock, err := hostlock.Acquire(ctx, filepath.Join(d.host.directory, "lock")); !errors.Is(err, hostlock.ErrHeld) {
			lock.Release()
			d.host.Errorf("%s is removed, but host-local's lock is free: %v", path, err)
		}
	}
	d.host.unlost()
	return d.realDisk.Remove(path)
}

// unlost demands that each pod's address is booked or still host-local's.
func (h *host) unlost() {
	h.Helper()
	booked := h.booked()
	for _, address := range []string{"10.77.3.2", "10.77.3.70"} {
		if _, err := os.Stat(filepath.Join(h.directory, address)); err != nil && booked[address] == "" {
			h.Errorf("address %s of a pod is nobody's", address)
		}
	}
}

func TestNothingToMove(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	if err := os.RemoveAll(h.directory); err != nil {
		t.Fatal(err)
	}
	if err := h.upgrade(nil).Once(h.context()); err != nil || h.opened != 0 {
		t.Errorf("no directory: %v, connected %d times", err, h.opened)
	}
	if err := os.MkdirAll(h.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	h.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if call.IsWrite() && strings.Contains(call.String(), "ClusterInformation") {
			t.Errorf("%s for nothing", call)
		}
		return nil
	}})
	if err := h.upgrade(nil).Once(h.context()); err != nil {
		t.Errorf("empty directory: %v", err)
	}
	if _, err := os.Stat(h.directory); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty directory is left: %v", err)
	}
	if plugins, err := os.ReadDir(h.plugins); err != nil || len(plugins) != 3 {
		t.Errorf("plugins were removed for nothing: %v, %v", plugins, err)
	}
}

// TestTakenAddress: an address that somebody else holds is told of, and keeps
// nobody else waiting.
func TestTakenAddress(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	allocator := ipam.New(h.store, ipam.Options{})
	for addr, handle := range map[string]string{"10.77.3.2": "other", "10.77.3.70": "k8s-pod-network.c2"} {
		_, err := allocator.AssignAddress(h.context(), ipam.AddressRequest{Addr: plan([]file{{name: addr}}, []*model.Pod{pod("a", "b", addr+"/32")})[0].addr, Host: "worker-b", HandleID: handle})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := h.upgrade(nil).Once(h.context()); err != nil {
		t.Fatal(err)
	}
	if log := h.log.String(); strings.Count(log, "another handle") != 1 || !strings.Contains(log, "10.77.3.2") {
		t.Errorf("the log:\n%s", log)
	}
}

// TestReadyConflicts: others change the cluster's information as well.
func TestReadyConflicts(t *testing.T) {
	t.Parallel()
	for conflicts, fails := range map[int]bool{4: false, 5: true} {
		h := newHost(t)
		left := conflicts
		h.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if left > 0 && call.IsWrite() && strings.Contains(call.String(), "ClusterInformation") {
				left--
				raw, _ := h.store.Raw(root + "clusterinformations/default")
				h.store.Plant(root+"clusterinformations/default", raw)
			}
			return nil
		}})
		err := h.upgrade(nil).Once(h.context())
		if (err != nil) != fails || fails && !strings.Contains(err.Error(), "ClusterInformation") {
			t.Errorf("%d conflicts: %v", conflicts, err)
		}
		if !fails {
			h.wantMoved()
		}
	}
}

// TestRefused: what cannot be done is an error that names the object; files and
// plugins stay.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(h *host)
		words []string
		code  cnierr.Code
	}{
		"no node":        {func(h *host) { h.store.Uproot(root + "nodes/worker-b") }, []string{"Node worker-b"}, cnierr.TryAgainLater},
		"no information": {func(h *host) { h.store.Uproot(root + "clusterinformations/default") }, []string{"ClusterInformation"}, cnierr.TryAgainLater},
		"no pool":        {func(h *host) { h.store.Uproot(root + "ippools/pods") }, []string{"10.77.3.1", "worker-b"}, cnierr.AddressOutsidePools},
	} {
		h := newHost(t)
		test.spoil(h)
		err := h.upgrade(nil).Once(h.context())
		if err == nil || cnierr.CodeOf(err) != test.code {
			t.Errorf("%s: code %d, %v", name, cnierr.CodeOf(err), err)
			continue
		}
		for _, word := range test.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error %q does not name %q", name, err, word)
			}
		}
		files, _ := os.ReadDir(h.directory)
		plugins, _ := os.ReadDir(h.plugins)
		if len(files) != 6 || len(plugins) != 3 {
			t.Errorf("%s: %d files and %d plugins are left", name, len(files), len(plugins))
		}
	}
}

// TestRun tries every second, tells why, and stops when it is told to.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		u := h.upgrade(nil)
		u.Pause, u.Settle = DefaultPause, DefaultSettle
		failures := 3
		open := u.Open
		u.Open = func(ctx context.Context) (connect.Connection, error) {
			if failures--; failures >= 0 {
				return connect.Connection{}, errors.New("connection refused")
			}
			return open(ctx)
		}
		began := time.Now()
		if err := u.Run(h.context()); err != nil {
			t.Fatal(err)
		}
		h.wantMoved()
		if took := time.Since(began); took < 8*time.Second || took > 9*time.Second {
			t.Errorf("it took %v, want 3 pauses and the time to settle", took)
		}
		if log := h.log.String(); strings.Count(log, "connection refused") != 3 || !strings.Contains(log, "worker-b") {
			t.Errorf("the log:\n%s", log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		u := h.upgrade(nil)
		u.Pause = DefaultPause
		u.Open = func(context.Context) (connect.Connection, error) {
			return connect.Connection{}, errors.New("connection refused")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
		defer cancel()
		if err := u.Run(ctx); err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "worker-b") {
			t.Errorf("stopped: %v", err)
		}
	})
}

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	getenv := func(pairs map[string]string) func(string) string {
		return func(name string) string { return pairs[name] }
	}
	if _, err := FromEnvironment(getenv(nil), nil); cnierr.CodeOf(err) != cnierr.Startup || !strings.Contains(err.Error(), "KUBERNETES_NODE_NAME") {
		t.Errorf("no node's name: code %d, %v", cnierr.CodeOf(err), err)
	}
	// Kubernetes is the datastore, whatever else is set.
	u, err := FromEnvironment(getenv(map[string]string{
		"KUBERNETES_NODE_NAME": "worker-b", "DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": "http://127.0.0.1:1",
		"KUBECONFIG": filepath.Join(t.TempDir(), "none"),
	}), nil)
	if err != nil || u.Node != "worker-b" || u.Directory != "/var/lib/cni/networks/k8s-pod-network" || u.Plugins != "/host/opt/cni/bin" ||
		!slices.Equal([]time.Duration{u.Settle, u.Pause}, []time.Duration{5 * time.Second, time.Second}) {
		t.Fatalf("%+v, %v", u, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := u.Open(ctx); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("connecting: %v", err)
	}
	if u, err = FromEnvironment(getenv(map[string]string{"KUBERNETES_NODE_NAME": "worker-b", "USE_POD_CIDR": "true", "KUBECONFIG": "none"}), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Open(ctx); err == nil || !strings.Contains(err.Error(), "USE_POD_CIDR") {
		t.Errorf("while addresses come from the nodes' ranges: %v", err)
	}
}
