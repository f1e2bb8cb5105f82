package ipamplugin

import (
	"context"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/kubevirt"
	"calico-cni/pkg/session"
)

// Plugin is the IPAM plugin. It implements invocation.Plugin.
type Plugin struct {
	session.Environment
	// NotesDirectory holds the attachment notes.
	NotesDirectory string
	// Shared is set if the network plugin runs this one in its own process.
	Shared *Shared
}

// Shared is what the network plugin has already.
type Shared struct {
	Session *session.Session
	// Store is its connection, holding what AddQueries and the like asked for.
	Store datastore.Store
	// Locked is true while the network plugin holds the host's IPAM lock, or
	// goes on without it. The verb's deadline then runs already.
	Locked bool
	// Before is what the host had claimed before Store was asked, if that was
	// before the lock was held.
	Before ipam.Claims
}

// DefaultNotesDirectory is where attachment notes are on an operating system.
func DefaultNotesDirectory(goos string) string {
	if goos == "windows" {
		return `c:\CalicoWindows\cni`
	}
	return "/var/lib/calico/cni"
}

// serving is one call being served.
type serving struct {
	*session.Session
	plugin *Plugin
	// machine is the virtual machine that the pod runs, if ADD found one.
	machine *kubevirt.Machine
	// before is what the host had claimed before ADD read its batch, if that was
	// before the lock was held.
	before ipam.Claims
}

// begin reads the configuration and identifies the workload. The datastore is
// not connected yet, unless it is shared.
func (p *Plugin) begin(call *invocation.Call) (*serving, error) {
	if p.Shared != nil {
		joined, err := session.Join(p.Shared.Session, call, p.Shared.Store)
		if err != nil {
			return nil, err
		}
		return &serving{Session: joined, plugin: p, before: p.Shared.Before}, nil
	}
	begun, err := session.Begin(p.Environment, "calico-ipam", call)
	if err != nil {
		return nil, err
	}
	if err := begun.Identify(); err != nil {
		begun.End(&err)
		return nil, err
	}
	return &serving{Session: begun, plugin: p}, nil
}

// locked reports whether the network plugin has seen to the lock.
func (s *serving) locked() bool { return s.plugin.Shared != nil && s.plugin.Shared.Locked }

// underLock runs do under the host's IPAM lock with the verb's deadline, which
// begins when the lock is held. The network plugin's deadline runs already: it
// may be that of undoing, which the verb's must not shorten.
func (s *serving) underLock(ctx context.Context, do func(context.Context) error) error {
	if s.locked() {
		return do(ctx)
	}
	s.TryLock(ctx)
	defer s.Unlock()
	if s.plugin.Shared != nil {
		return do(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, s.Conf.Timeout())
	defer cancel()
	return do(ctx)
}

func (s *serving) allocatorOn(store datastore.Store) *ipam.Allocator {
	return ipam.New(store, ipam.Options{Now: s.Now, Logger: s.Log, Checked: s.checkedPools(), Claimed: claimedBlocksOf(s.Session)})
}

func (s *serving) allocator() *ipam.Allocator { return s.allocatorOn(s.Store) }

// handleID is the handle that ADD books addresses under.
func (s *serving) handleID() string {
	if s.machine != nil {
		return s.machine.HandleID
	}
	return s.ID.HandleID()
}

func (s *serving) windows() bool { return s.GOOS == "windows" }
