package plugin

import (
	"context"
	"net/netip"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/session"
	"calico-cni/pkg/workload"
)

// Plugin is the network plugin. It implements invocation.Plugin.
type Plugin struct {
	session.Environment
	// Environ copies the process's environment for an IPAM plugin that is
	// executed.
	Environ func() []string
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
	Dataplane func(*session.Session) dataplane.Dataplane
	// Host does what a node agent would do, where there is none.
	Host Host

	// pause is for tests; nil waits in real time.
	pause func(context.Context, time.Duration) error
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

// serving is one call being served.
type serving struct {
	*session.Session
	plugin    *Plugin
	prefix    string
	dataplane dataplane.Dataplane
	ipam      delegate
	// left is what remains of the verb's time, which waiting for the IPAM lock
	// does not take from ("where we go beyond the reference" 3).
	left time.Duration
	// claimed is what this host had claimed before ADD read its batch.
	claimed ipam.Claims
	// azure is what an ADD of azure-vnet-ipam returned in this process.
	azure *azureEndpoint
}

// begin reads the configuration and starts the log.
func (p *Plugin) begin(call *invocation.Call) (*serving, error) {
	begun, err := session.Begin(p.Environment, "calico", call)
	if err != nil {
		return nil, err
	}
	s := &serving{Session: begun, plugin: p, dataplane: p.Dataplane(begun), left: begun.Conf.Timeout()}
	if s.dataplane == nil {
		err := error(cnierr.New(cnierr.UnsupportedField,
			"this build has no data plane for %s: only calico-ipam serves here, with another network plugin", p.GOOS))
		s.End(&err)
		return nil, err
	}
	return s, nil
}

// validate finds what must keep a verb from touching anything.
func (s *serving) validate() error {
	if err := s.Conf.Validate(); err != nil {
		return err
	}
	if _, _, external := s.Conf.ExternalDataplane(); external {
		return cnierr.New(cnierr.UnsupportedField,
			"network configuration key dataplane_options.type: \"grpc\" is not supported by this version: remove the key to use the operating system's data plane")
	}
	return nil
}

// identify finds the workload and the prefix of its host interface.
func (s *serving) identify() error {
	if err := s.Identify(); err != nil {
		return err
	}
	var err error
	s.prefix, err = workload.InterfacePrefix(s.Getenv("FELIX_INTERFACEPREFIX"))
	return err
}

// spend has do use what remains of the verb's time.
func (s *serving) spend(ctx context.Context, do func(context.Context) error) error {
	start := time.Now()
	defer func() { s.left -= time.Since(start) }()
	ctx, cancel := context.WithTimeout(ctx, s.left)
	defer cancel()
	return do(ctx)
}

// lockIPAM takes the host's IPAM lock if this process is the one that changes
// the addresses.
func (s *serving) lockIPAM(ctx context.Context) {
	if s.ipam.inProcess() {
		s.TryLock(ctx)
	}
}
