package plugin

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/hostlock"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/logging"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/nodename"
	"calico-cni/pkg/workload"
)

// Plugin is the network plugin. It implements invocation.Plugin.
type Plugin struct {
	// Getenv reads the process's environment, Environ copies it whole for an
	// IPAM plugin that is executed.
	Getenv  func(string) string
	Environ func() []string
	Stderr  io.Writer
	// GOOS is the operating system whose rules hold, as in runtime.GOOS.
	GOOS string
	Now  func() time.Time
	// Open connects to the datastore.
	Open connect.Opener
	// MTUFile is what the node agent writes the detected MTU to.
	MTUFile string
	// StateDirectory holds what delegation to azure-vnet-ipam must remember.
	StateDirectory string
	// NotesDirectory is the IPAM plugin's.
	NotesDirectory string
	// SameBuild reports whether an executable is of this very build.
	SameBuild func(path string) bool
	// Dataplane connects the pods of this host; nil if there is none for its
	// operating system.
	Dataplane func(call *invocation.Call, log *slog.Logger) dataplane.Dataplane
	// Host does what a node agent would do, where there is none.
	Host Host
}

// Host is what the embedded datastore's mode needs of the host beyond the
// pods' own interfaces ("where we go beyond the reference" 7).
type Host interface {
	// Forwarding fails with code 51 if forwarding of a family is off.
	Forwarding(ipv4, ipv6 bool) error
	EnableForwarding(ctx context.Context, ipv4, ipv6 bool) error
	// EnsureMasquerade makes traffic from pools with NATOutgoing to outside all
	// pools leave with the host's address; without such a pool it does nothing.
	EnsureMasquerade(ctx context.Context, pools []NATPool) error
	// MasqueradePresent reports whether EnsureMasquerade would change nothing.
	MasqueradePresent(ctx context.Context, pools []NATPool) (bool, error)
	RemoveMasquerade(ctx context.Context) error
}

// NATPool is a pool's range, and whether what leaves it is masqueraded.
type NATPool struct {
	CIDR        netip.Prefix
	NATOutgoing bool
}

// DefaultMTUFile is where a node agent writes the MTU.
const DefaultMTUFile = "/var/lib/calico/mtu"

// DefaultStateDirectory is where state of delegated plugins is kept.
const DefaultStateDirectory = "/var/run/calico"

// cleanupTime bounds the undoing of a failed verb ("where we go beyond the
// reference" 3).
const cleanupTime = 30 * time.Second

// session is one call with everything it needs.
type session struct {
	*Plugin
	conf      *netconf.Config
	call      *invocation.Call
	id        workload.Identity
	prefix    string
	log       *slog.Logger
	dataplane dataplane.Dataplane
	store     datastore.Store
	embedded  bool
	ipam      delegate
	lock      *hostlock.Lock
	// azure is what an ADD of azure-vnet-ipam returned in this process.
	azure *azureEndpoint
	close []func()
}

// begin reads the configuration and starts the log. It asks nothing of the
// host or the datastore.
func (p *Plugin) begin(call *invocation.Call) (*session, error) {
	conf, err := netconf.Parse(call.Stdin)
	if err != nil {
		return nil, err
	}
	connect.ExpectNoAgent(conf, p.Getenv)
	s := &session{Plugin: p, conf: conf, call: call}
	log, stop := logging.New(logging.Options{
		Level: conf.LogLevel, File: conf.LogFilePath, MaxSizeMB: conf.LogFileMaxSize,
		MaxAgeDays: conf.LogFileMaxAge, MaxCount: conf.LogFileMaxCount,
	}, p.Stderr)
	s.close = append(s.close, stop)
	s.log = log.With("plugin", "calico", "verb", string(call.Verb), "network", conf.Name)
	if call.ContainerID != "" {
		s.log = s.log.With("container", call.ContainerID, "interface", call.IfName)
	}
	if s.dataplane = p.Dataplane(call, s.log); s.dataplane == nil {
		s.end()
		return nil, cnierr.New(cnierr.UnsupportedField,
			"this build has no data plane for %s: only calico-ipam serves here, with another network plugin", p.GOOS)
	}
	return s, nil
}

// warn logs what the configuration's author should know. STATUS leaves it
// out: it runs every few seconds.
func (s *session) warn() {
	for _, warning := range s.conf.Warnings {
		s.log.Warn("network configuration: " + warning)
	}
}

// warnPlaceholders: what ADD refuses must not keep a container from being
// deleted.
func (s *session) warnPlaceholders() {
	for _, path := range s.conf.Placeholders {
		s.log.Warn("network configuration: a placeholder was left", "key", path)
	}
}

// validate finds what must keep a verb from touching anything.
func (s *session) validate() error {
	if err := s.conf.Validate(); err != nil {
		return err
	}
	if _, _, external := s.conf.ExternalDataplane(); external {
		return cnierr.New(cnierr.UnsupportedField,
			"network configuration key dataplane_options.type: \"grpc\" is not supported by this version: remove the key to use the operating system's data plane")
	}
	if s.conf.Policy.Type == netconf.PolicyKubernetes {
		return cnierr.New(cnierr.UnsupportedField,
			"network configuration key policy.type: \"k8s\" needs the Kubernetes API, which this version does not support: remove the key to use the network's own profile")
	}
	return nil
}

// identify finds the workload's names.
func (s *session) identify() error {
	args, err := workload.ParseArgs(s.call.Args)
	if err != nil {
		return err
	}
	if s.prefix, err = workload.InterfacePrefix(s.Getenv("FELIX_INTERFACEPREFIX")); err != nil {
		return err
	}
	node, err := nodename.Resolve(s.conf)
	if err != nil {
		return err
	}
	s.id = workload.NewIdentity(node, workload.Attachment{
		Network: s.conf.Name, ContainerID: s.call.ContainerID, IfName: s.call.IfName,
	}, args, s.conf.LabelNamespace())
	return nil
}

// open connects to the datastore.
func (s *session) open(ctx context.Context) error {
	connection, err := s.Open(ctx, s.conf, s.id.Node)
	if err != nil {
		return err
	}
	s.store, s.embedded = connection.Store, connection.Embedded
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

// end gives back what the session opened, last first.
func (s *session) end() {
	s.lock.Release()
	for i := len(s.close) - 1; i >= 0; i-- {
		s.close[i]()
	}
}

// lockIPAM takes the host's IPAM lock if this process is the one that changes
// the addresses. Going on without it is safe.
func (s *session) lockIPAM(ctx context.Context) {
	if !s.ipam.inProcess() {
		return
	}
	lock, err := ipamplugin.Lock(ctx, s.conf)
	if err != nil {
		s.log.Warn("going on without the IPAM lock, which only reduces contention", "error", err)
	}
	s.lock = lock
}

// cleanupContext outlives a deadline that has passed: what was made must be
// taken back.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}
