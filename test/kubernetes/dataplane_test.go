//go:build kubernetes && linux

package kubernetes

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/plugin"
	"calico-cni/pkg/session"
	"calico-cni/pkg/workload"
)

// links are a data plane in memory: what is tested here is between the plugin
// and the server.
type links struct {
	mu    sync.Mutex
	owner map[string]workload.Attachment
	// during runs while a pod is being connected.
	during func()
	last   dataplane.Request
}

func (l *links) Validate(string) error                     { return nil }
func (l *links) HasInterface(string, string) (bool, error) { return false, nil }
func (l *links) Possible() error                           { return nil }

func (l *links) Tunnels(context.Context, dataplane.Link) ([]dataplane.Tunnel, error) {
	return nil, nil
}

func (l *links) Serves(context.Context, func(context.Context) (bool, error)) error { return nil }

func (l *links) Add(_ context.Context, r dataplane.Request) (dataplane.Link, error) {
	if l.during != nil {
		l.during()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner[r.HostInterface], l.last = r.Attachment, r
	return dataplane.Link{HostInterface: r.HostInterface, Index: 7, MAC: "02:00:00:00:00:07"}, nil
}

func (l *links) Confirm(_ context.Context, link dataplane.Link) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.owner[link.HostInterface]; !there {
		return cnierr.New(cnierr.Overtaken, "the link %s is gone", link.HostInterface)
	}
	return nil
}

func (l *links) Undo(_ context.Context, link dataplane.Link) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.owner, link.HostInterface)
	return nil
}

func (l *links) Delete(_ context.Context, r dataplane.Removal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.owner, func(_ string, owner workload.Attachment) bool { return owner == r.Attachment })
	return nil
}

func (l *links) Differences(context.Context, dataplane.Expectation) ([]string, error) {
	return nil, nil
}

func (l *links) Owned(context.Context) ([]dataplane.Found, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var owned []dataplane.Found
	for _, name := range slices.Sorted(maps.Keys(l.owner)) {
		alias := l.owner[name].Alias()
		owner, _ := workload.ParseAlias(alias)
		owned = append(owned, dataplane.Found{HostInterface: name, Index: 7, Alias: alias, Owner: owner})
	}
	return owned, nil
}

func (l *links) OwnedBy(ctx context.Context, a workload.Attachment) ([]dataplane.Found, error) {
	owned, err := l.Owned(ctx)
	return slices.DeleteFunc(owned, func(f dataplane.Found) bool { return !f.Owner.HasContainer(a.ContainerID) }), err
}

func (l *links) Remove(_ context.Context, found dataplane.Found) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.owner, found.HostInterface)
	return nil
}

// agentHost is a host whose agent sees to forwarding.
type agentHost struct{ plugin.Host }

func (agentHost) Forwarding(bool, bool) error { return nil }

// calico is the network plugin on a host, with calico-ipam in its process.
func (h *host) calico() *plugin.Plugin {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "calico-ipam"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		h.Fatal(err)
	}
	return &plugin.Plugin{
		Environment: h.environment(), Environ: os.Environ,
		MTUFile: filepath.Join(h.dir, "mtu"), StateDirectory: filepath.Join(h.dir, "state"), NotesDirectory: filepath.Join(h.dir, "notes"),
		SameBuild: func(path string) bool { return filepath.Base(path) == "calico-ipam" },
		Dataplane: func(*session.Session) dataplane.Dataplane { return h.links },
		Host:      agentHost{},
	}
}

// gone demands that no address, handle or link is left.
func (h *host) gone(t *testing.T) {
	t.Helper()
	h.consistent(0)
	if len(h.links.owner) != 0 {
		t.Errorf("links are left: %v", h.links.owner)
	}
}
