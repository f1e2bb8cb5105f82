package session

import (
	"bytes"
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
	"calico-cni/pkg/logging"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/nodename"
	"calico-cni/pkg/workload"
)

// The longest waits for the IPAM lock and for a clean-up ("where we go beyond
// the reference" 3).
const (
	lockTime    = 90 * time.Second
	cleanupTime = 30 * time.Second
)

// StatusTime bounds STATUS whatever hangs: a runtime asks every few seconds.
const StatusTime = 2 * time.Second

// networkPlugin is the name of the network plugin of the pair.
const networkPlugin = "calico"

// Environment is the surroundings of a plugin.
type Environment struct {
	// Getenv reads the process's environment.
	Getenv func(string) string
	// Open connects to the datastore.
	Open connect.Opener
	// TakeLock waits for the lock of a file until the context ends. It is for
	// tests, on whose clock no lock can be awaited; nil is hostlock.Acquire.
	TakeLock func(ctx context.Context, path string) (*hostlock.Lock, error)
	Stderr   io.Writer
	// GOOS is the operating system whose rules hold, as in runtime.GOOS.
	GOOS string
	// Now is the clock.
	Now func() time.Time
}

// Session is one call being served.
type Session struct {
	Environment
	Conf *netconf.Config
	Call *invocation.Call
	// Args and ID are set by Identify.
	Args workload.Args
	ID   workload.Identity
	Log  *slog.Logger
	// Store, Embedded and API are set by Connect: see connect.Connection.
	Store    datastore.Store
	Embedded bool
	API      connect.Reader

	credentials    string
	credentialsEnd time.Time

	labelAffinities func(ctx context.Context, host string) (int, error)
	writable        func() error

	// joined is true if another plugin's session reports what there is to tell,
	// quiet if another process warns of the same configuration.
	joined, quiet bool

	lock *hostlock.Lock
	// unlocked is true while the session goes on without the lock.
	unlocked bool
	ends     []func()
}

// Begin reads the configuration and starts the log of a plugin. It asks
// nothing of the host or the datastore.
func Begin(env Environment, plugin string, call *invocation.Call) (*Session, error) {
	s := &Session{Environment: env, Call: call}
	if err := s.configure(); err != nil {
		return nil, err
	}
	log, stop := logging.New(logging.Options{
		Level: s.Conf.LogLevel, File: s.Conf.LogFilePath, MaxSizeMB: s.Conf.LogFileMaxSize,
		MaxAgeDays: s.Conf.LogFileMaxAge, MaxCount: s.Conf.LogFileMaxCount,
	}, env.Stderr)
	s.ends = append(s.ends, stop)
	s.Log = log.With("plugin", plugin, "verb", string(call.Verb), "network", s.Conf.Name)
	if call.ContainerID != "" {
		s.Log = s.Log.With("container", call.ContainerID, "interface", call.IfName)
	}
	// The network plugin that executed this IPAM plugin warned already.
	s.quiet = plugin != networkPlugin && s.Conf.Type == networkPlugin
	s.warn(s.Conf.Warnings, "network configuration: ")
	return s, nil
}

// Join is Begin and Identify for a plugin that another one runs in its own
// process, on its datastore connection: it writes to that one's log, which has
// the warnings already. Only a call that differs from the other one's is read
// anew.
func Join(outer *Session, call *invocation.Call, store datastore.Store) (*Session, error) {
	s := &Session{Environment: outer.Environment, Conf: outer.Conf, Call: call, Log: outer.Log, Store: store, Embedded: outer.Embedded, API: outer.API, joined: true}
	same := bytes.Equal(call.Stdin, outer.Call.Stdin)
	if !same {
		if err := s.configure(); err != nil {
			return nil, err
		}
	}
	if same && call.Args == outer.Call.Args {
		s.Args, s.ID = outer.Args, outer.ID
		return s, nil
	}
	return s, s.Identify()
}

func (s *Session) configure() error {
	var err error
	if s.Conf, err = netconf.Parse(s.Call.Stdin); err != nil {
		return err
	}
	connect.ExpectNoAgent(s.Conf, s.Getenv)
	return nil
}

// warn logs warnings, but not in STATUS, which runs every few seconds.
func (s *Session) warn(warnings []string, prefix string) {
	if s.Call.Verb == invocation.Status || s.quiet {
		return
	}
	for _, warning := range warnings {
		s.Log.Warn(prefix + warning)
	}
}

// WarnPlaceholders is for the verbs that go on in spite of placeholders: what
// ADD refuses must not keep a container from being deleted.
func (s *Session) WarnPlaceholders() {
	if s.quiet || s.joined {
		return
	}
	for _, path := range s.Conf.Placeholders {
		s.Log.Warn("network configuration: a placeholder was left", "key", path)
	}
}

// Identify finds out which workload the call is for.
func (s *Session) Identify() error {
	var err error
	if s.Args, err = workload.ParseArgs(s.Call.Args); err != nil {
		return err
	}
	node, err := nodename.Resolve(s.Conf)
	if err != nil {
		return err
	}
	s.ID = workload.NewIdentity(node, workload.Attachment{
		Network: s.Conf.Name, ContainerID: s.Call.ContainerID, IfName: s.Call.IfName,
	}, s.Args, s.Conf.LabelNamespace())
	return nil
}

// Connect opens the datastore, unless the session has one.
func (s *Session) Connect(ctx context.Context) error {
	if s.Store != nil {
		return nil
	}
	connection, err := s.Open(ctx, s.Conf, s.ID.Node)
	if err != nil {
		return err
	}
	s.Store, s.Embedded, s.API, s.labelAffinities = connection.Store, connection.Embedded, connection.API, connection.LabelAffinities
	s.credentials, s.credentialsEnd, s.writable = connection.Credentials, connection.CredentialsEnd, connection.Writable
	if s.Call.Verb == invocation.GC && connection.Unlimit != nil {
		connection.Unlimit()
	}
	s.ends = append(s.ends, func() {
		if err := connection.Store.Close(); err != nil {
			s.Log.Warn("closing the datastore", "error", err)
		}
	})
	s.warn(connection.Warnings, "")
	return nil
}

// credentialsReserve is how long credentials must last for STATUS to be content
// ("where we go beyond the reference" 1).
const credentialsReserve = 5 * time.Minute

// CheckAccess fails if the datastore, though it answers, could not be written, or
// not for long: with code 50 if the credentials for it end within 5 min.
func (s *Session) CheckAccess() error {
	if s.writable != nil {
		if err := s.writable(); err != nil {
			return err
		}
	}
	if s.credentialsEnd.IsZero() || s.Now().Add(credentialsReserve).Before(s.credentialsEnd) {
		return nil
	}
	return cnierr.New(cnierr.NotAvailable, "pods cannot be networked for long: the credentials of %s end at %s: renew them",
		s.credentials, s.credentialsEnd.UTC().Format(time.RFC3339))
}

// Lock takes the host's IPAM lock, waiting at most 90 s, and no longer than
// half of what ctx has left: whoever waits in vain needs time for what it came
// for. The error has code 109; going on without the lock is safe (IPAM
// contract 7.3).
func (s *Session) Lock(ctx context.Context) error {
	wait := lockTime
	if end, limited := ctx.Deadline(); limited {
		wait = min(wait, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	take := s.TakeLock
	if take == nil {
		take = hostlock.Acquire
	}
	lock, err := take(ctx, s.Conf.IPAMLockFile)
	if errors.Is(err, hostlock.ErrHeld) {
		return cnierr.New(cnierr.LockNotObtained, "taking the IPAM lock: %w; look for a process that was stopped while it held it", err)
	}
	if err != nil {
		return cnierr.New(cnierr.LockNotObtained, "taking the IPAM lock: %w; see to it that the file can be made", err)
	}
	s.lock = lock
	return nil
}

// TryLock is Lock for a verb that goes on without it.
func (s *Session) TryLock(ctx context.Context) {
	if err := s.Lock(ctx); err != nil {
		s.Log.Warn("going on without the IPAM lock, which only reduces contention", "error", err)
		s.unlocked = true
	}
}

// Locked reports whether the session holds the IPAM lock, or goes on without
// it: in either case nobody needs to wait for it again.
func (s *Session) Locked() bool { return s.lock.Held() || s.unlocked }

// Unlock ends what Lock and TryLock began.
func (s *Session) Unlock() {
	s.lock.Release()
	s.unlocked = false
}

// End logs how the call failed, if it did, and gives back what the session
// holds, last first. STATUS fails every few seconds while its cause lasts, and
// the runtime tells of it.
func (s *Session) End(failure *error) {
	if *failure != nil && !s.joined && s.Call.Verb != invocation.Status {
		s.Log.Error(string(s.Call.Verb)+" failed", "code", cnierr.CodeOf(*failure), "error", *failure)
	}
	s.Unlock()
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// CleanupContext outlives a deadline that has passed: what a failed verb made
// must be taken back.
func CleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}
