package ipamplugin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/hostlock"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/logging"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/nodename"
	"calico-cni/pkg/workload"
)

// Plugin is the IPAM plugin. It implements invocation.Plugin.
type Plugin struct {
	// Getenv reads the process's environment.
	Getenv func(string) string
	// Open connects to the datastore.
	Open   connect.Opener
	Stderr io.Writer
	// GOOS is the operating system whose rules hold, as in runtime.GOOS.
	GOOS string
	// Now is the clock.
	Now func() time.Time
	// NotesDirectory holds the attachment notes.
	NotesDirectory string
	// Shared is set if the network plugin runs this one in its own process.
	Shared *Shared
}

// Shared is what the network plugin has already.
type Shared struct {
	Store datastore.Store
	Log   *slog.Logger
	// Locked is true while the network plugin holds the host's IPAM lock. The
	// verb's deadline then runs already.
	Locked bool
}

// DefaultNotesDirectory is where attachment notes are on an operating system.
func DefaultNotesDirectory(goos string) string {
	if goos == "windows" {
		return `c:\CalicoWindows\cni`
	}
	return "/var/lib/calico/cni"
}

// The longest waits for the lock and for a clean-up ("where we go beyond the
// reference" 3).
const (
	lockWait    = 90 * time.Second
	cleanupTime = 30 * time.Second
)

// session is one call with everything it needs.
type session struct {
	*Plugin
	conf  *netconf.Config
	call  *invocation.Call
	args  workload.Args
	id    workload.Identity
	log   *slog.Logger
	store datastore.Store
	close []func()
}

// begin reads the configuration and identifies the workload. The store is not
// open yet: open does that.
func (p *Plugin) begin(call *invocation.Call) (*session, error) {
	conf, err := netconf.Parse(call.Stdin)
	if err != nil {
		return nil, err
	}
	connect.ExpectNoAgent(conf, p.Getenv)
	s := &session{Plugin: p, conf: conf, call: call}
	if s.args, err = workload.ParseArgs(call.Args); err != nil {
		return nil, err
	}
	node, err := nodename.Resolve(conf)
	if err != nil {
		return nil, err
	}
	s.id = workload.NewIdentity(node, workload.Attachment{
		Network: conf.Name, ContainerID: call.ContainerID, IfName: call.IfName,
	}, s.args, conf.LabelNamespace())
	if p.Shared != nil {
		s.log, s.store = p.Shared.Log, p.Shared.Store
		return s, nil
	}
	s.startLog()
	return s, nil
}

func (s *session) startLog() {
	log, stop := logging.New(logging.Options{
		Level: s.conf.LogLevel, File: s.conf.LogFilePath, MaxSizeMB: s.conf.LogFileMaxSize,
		MaxAgeDays: s.conf.LogFileMaxAge, MaxCount: s.conf.LogFileMaxCount,
	}, s.Stderr)
	s.log = log.With("plugin", "calico-ipam", "verb", string(s.call.Verb), "network", s.conf.Name,
		"container", s.call.ContainerID, "interface", s.call.IfName)
	s.close = append(s.close, stop)
	if s.call.Verb == invocation.Status {
		return
	}
	for _, warning := range s.conf.Warnings {
		s.log.Warn("network configuration: " + warning)
	}
}

// open connects to the datastore, if the session does not share one.
func (s *session) open(ctx context.Context) error {
	if s.store != nil {
		return nil
	}
	connection, err := s.Open(ctx, s.conf, s.id.Node)
	if err != nil {
		return err
	}
	s.store = connection.Store
	s.close = append(s.close, func() {
		if err := connection.Store.Close(); err != nil {
			s.log.Warn("closing the datastore", "error", err)
		}
	})
	if s.call.Verb == invocation.Status {
		return nil
	}
	for _, warning := range connection.Warnings {
		s.log.Warn(warning)
	}
	return nil
}

// end closes what the session opened, last first.
func (s *session) end() {
	for i := len(s.close) - 1; i >= 0; i-- {
		s.close[i]()
	}
}

// underLock runs do under the host's IPAM lock with the verb's deadline, which
// begins when the lock is held. Without the lock it goes on, after a warning.
func (s *session) underLock(ctx context.Context, do func(context.Context) error) error {
	if s.Shared != nil && s.Shared.Locked {
		return do(ctx)
	}
	lock, err := Lock(ctx, s.conf)
	if err != nil {
		s.log.Warn("going on without the IPAM lock, which only reduces contention", "error", err)
	}
	defer lock.Release()
	ctx, cancel := context.WithTimeout(ctx, s.conf.Timeout())
	defer cancel()
	return do(ctx)
}

// Lock takes the host's IPAM lock, waiting at most 90 s.
func Lock(ctx context.Context, conf *netconf.Config) (*hostlock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return hostlock.Acquire(ctx, conf.IPAMLockFile)
}

// cleanupContext outlives a deadline that has passed: what was taken must be
// given back.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

func (s *session) allocatorOn(store datastore.Store) *ipam.Allocator {
	return ipam.New(store, ipam.Options{Now: s.Now, Logger: s.log})
}

func (s *session) allocator() *ipam.Allocator { return s.allocatorOn(s.store) }

func (s *session) windows() bool { return s.GOOS == "windows" }

// lockFailed gives a lock that was not obtained its code.
func lockFailed(err error) error {
	if errors.Is(err, hostlock.ErrHeld) {
		return cnierr.New(cnierr.LockNotObtained, "taking the IPAM lock: %w; look for a process that was stopped while it held it", err)
	}
	return cnierr.New(cnierr.LockNotObtained, "taking the IPAM lock: %w", err)
}
