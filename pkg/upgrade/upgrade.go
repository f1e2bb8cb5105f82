package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/hostlock"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

// Where things are on a node (IPAM contract 11).
const (
	DefaultDirectory = "/var/lib/cni/networks/" + network
	DefaultPlugins   = "/host/opt/cni/bin"
)

// The waits of IPAM contract 11, and the longest that one step may take.
const (
	DefaultSettle = 5 * time.Second
	DefaultPause  = time.Second
	stepTime      = 90 * time.Second
)

// Upgrade moves one node.
type Upgrade struct {
	Node string
	// Directory holds host-local's files, Plugins the executables that would
	// go on using them.
	Directory, Plugins string
	// Settle is how long executables that were running get to finish, Pause the
	// wait before everything is tried again.
	Settle, Pause time.Duration
	Open          func(ctx context.Context) (connect.Connection, error)
	Log           *slog.Logger
	// Disk is the node's; nil: the real one.
	Disk Disk
}

// Run tries until the node is moved, or ctx ends.
func (u *Upgrade) Run(ctx context.Context) error {
	for {
		err := u.Once(ctx)
		if err == nil {
			return nil
		}
		u.Log.Error("the node is not moved from host-local to calico-ipam yet; trying again", "node", u.Node, "wait", u.Pause, "error", err)
		if !wait(ctx, u.Pause) {
			return fmt.Errorf("moving node %s from host-local to calico-ipam: %w; run it again to go on", u.Node, err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Once tries once. Whatever an earlier try has done is not done again.
func (u *Upgrade) Once(ctx context.Context) error {
	if u.Disk == nil {
		u.Disk = realDisk{}
	}
	files, err := u.Disk.Names(u.Directory)
	if errors.Is(err, fs.ErrNotExist) {
		u.Log.Info("host-local has no addresses here: nothing to move", "directory", u.Directory)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading what host-local has given away: %w", err)
	}
	openCtx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	connection, err := u.Open(openCtx)
	if err != nil {
		return err
	}
	m := &move{Upgrade: u, store: connection.Store, allocator: ipam.New(connection.Store, ipam.Options{Logger: u.Log})}
	err = m.run(ctx, connection.LabelAffinities, len(files) == 0)
	if closeErr := connection.Store.Close(); err == nil {
		err = closeErr
	}
	return err
}

// move is one try.
type move struct {
	*Upgrade
	store     datastore.Store
	allocator *ipam.Allocator
}

func (m *move) run(ctx context.Context, label func(context.Context, string) (int, error), empty bool) error {
	if label != nil {
		if err := m.within(ctx, func(ctx context.Context) error {
			_, err := label(ctx, m.Node)
			return err
		}); err != nil {
			return fmt.Errorf("labelling the block affinities of node %s that an old release wrote: %w", m.Node, err)
		}
	}
	if err := m.within(ctx, m.tunnel); err != nil {
		return err
	}
	if !empty {
		if err := m.moveAll(ctx); err != nil {
			return err
		}
	}
	if err := m.Disk.RemoveAll(m.Directory); err != nil {
		return fmt.Errorf("removing what is left of host-local: %w", err)
	}
	m.Log.Info("the node is moved from host-local to calico-ipam", "node", m.Node)
	return nil
}

// within gives a step its deadline.
func (m *move) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	return do(ctx)
}

// moveAll books what host-local has given away. Meanwhile no plugin works, in
// the whole cluster: pods wait, and lose nothing. The lock that host-local
// takes makes the directory non-empty, so that whoever is killed here comes
// here again and makes the cluster ready.
func (m *move) moveAll(ctx context.Context) error {
	if err := m.within(ctx, m.makeReady(false)); err != nil {
		return err
	}
	for _, plugin := range []string{"calico", "host-local"} {
		if err := m.Disk.Remove(filepath.Join(m.Plugins, plugin)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the plugin that would go on using host-local's addresses: %w", err)
		}
	}
	if !wait(ctx, m.Settle) {
		return context.Cause(ctx)
	}
	if err := m.moveFiles(ctx); err != nil {
		return err
	}
	return m.within(ctx, m.makeReady(true))
}

func (m *move) moveFiles(ctx context.Context) error {
	lockCtx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	lock, err := hostlock.Acquire(lockCtx, filepath.Join(m.Directory, "lock"))
	if err != nil {
		return fmt.Errorf("taking host-local's lock: %w", err)
	}
	defer lock.Release()
	files, err := m.files()
	if err != nil {
		return err
	}
	var pods []*model.Pod
	if err := m.within(ctx, func(ctx context.Context) error {
		pods, err = m.pods(ctx)
		return err
	}); err != nil {
		return err
	}
	for _, s := range plan(files, pods) {
		if err := m.within(ctx, func(ctx context.Context) error { return m.carryOut(ctx, s) }); err != nil {
			return err
		}
	}
	return nil
}

func (m *move) files() ([]file, error) {
	names, err := m.Disk.Names(m.Directory)
	if err != nil {
		return nil, fmt.Errorf("reading what host-local has given away: %w", err)
	}
	files := make([]file, len(names))
	for i, name := range names {
		files[i].name = name
		if s, known := stepFor(files[i], nil); !known || s.strange != "" {
			continue
		}
		content, err := m.Disk.ReadFile(filepath.Join(m.Directory, name))
		if err != nil {
			return nil, fmt.Errorf("reading whom host-local has given %s: %w", name, err)
		}
		files[i].content = string(content)
	}
	return files, nil
}

// carryOut books the address before its file goes: the other way round it would
// be nobody's.
func (m *move) carryOut(ctx context.Context, s step) error {
	if s.strange != "" {
		m.Log.Warn("host-local's file makes no sense and is left to the end", "file", s.name, "reason", s.strange)
		return nil
	}
	if s.addr.IsValid() {
		attributes := map[string]string{"node": m.Node, "pod": s.pod, "namespace": s.namespace}
		if err := m.book(ctx, s.addr, s.handleID, attributes); err != nil {
			return fmt.Errorf("booking address %s of pod %s/%s: %w", s.addr, s.namespace, s.pod, err)
		}
	}
	if err := m.Disk.Remove(filepath.Join(m.Directory, s.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing host-local's file: %w", err)
	}
	m.Log.Info("host-local's file is done with", "file", s.name, "handle", s.handleID)
	return nil
}
