package linux

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
)

const (
	// deletionLimit is how long a link deletion may take: old kernels can hang
	// in it (linux data plane 9).
	deletionLimit = 20 * time.Second
	// convergenceLimit is how long CHECK waits for the policy agent to finish
	// what it may be doing (linux data plane 9.2).
	convergenceLimit = 2 * time.Second
)

// Options configure a Dataplane. The zero value is what a plugin wants.
type Options struct {
	// AllowOwnNamespace switches the check off that a verb does not act on the
	// plugin's own network namespace (CNI_NETNS_OVERRIDE).
	AllowOwnNamespace bool
	// Logger receives warnings; nil discards them.
	Logger *slog.Logger
}

// Dataplane connects pods of the host whose network namespace the calling
// thread is in. It holds no resources between calls.
type Dataplane struct {
	allowOwn bool
	log      *slog.Logger
	kernel   kernel
}

var _ dataplane.Dataplane = (*Dataplane)(nil)

// kernel is everything the data plane asks of the operating system that a test
// may want to fail, and how long it is waited for.
type kernel struct {
	dial             func(context.Context, netns.NsHandle) (rtnetlink, error)
	writeSysctl      func(path, value string) error
	deletionLimit    time.Duration
	convergenceLimit time.Duration
}

// New returns a data plane. It does nothing yet.
func New(options Options) *Dataplane {
	log := options.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Dataplane{
		allowOwn: options.AllowOwnNamespace,
		log:      log,
		kernel: kernel{
			dial:             dial,
			writeSysctl:      writeSysctl,
			deletionLimit:    deletionLimit,
			convergenceLimit: convergenceLimit,
		},
	}
}

// Validate reports whether a verb may use the namespace: code 4 if the path is
// missing or no network namespace, code 8 if it is the plugin's own.
func (d *Dataplane) Validate(namespace string) error {
	own, err := ownNamespace()
	if err != nil {
		return err
	}
	defer own.Close()
	pod, err := d.openPodNamespace(namespace, own)
	if err != nil {
		return err
	}
	pod.Close()
	return nil
}

// Possible always holds: what a request cannot have depends on the kernel.
func (d *Dataplane) Possible() error { return nil }

// Tunnels has none: on Linux the node agent makes them.
func (d *Dataplane) Tunnels(context.Context, dataplane.Link) ([]dataplane.Tunnel, error) {
	return nil, nil
}

// Serves always holds: a pod's interfaces need nothing else of the data plane.
func (d *Dataplane) Serves(context.Context, func(context.Context) (bool, error)) error { return nil }

// openPodNamespace opens a namespace that a verb must have, and that it may use.
func (d *Dataplane) openPodNamespace(path string, own netns.NsHandle) (netns.NsHandle, error) {
	pod, err := openNamespace(path)
	switch {
	case errors.Is(err, errNoNamespace):
		return netns.None(), cnierr.New(cnierr.InvalidEnvironment,
			"CNI_NETNS: %w; the runtime must pass the path of the pod's network namespace", err)
	case err != nil:
		return netns.None(), refused(err, "opening network namespace %s (CNI_NETNS)", path)
	case pod.Equal(own) && !d.allowOwn:
		pod.Close()
		return netns.None(), errOwnNamespace(path)
	}
	return pod, nil
}

func errOwnNamespace(path string) error {
	return cnierr.New(cnierr.OwnNamespace,
		"CNI_NETNS %s is the plugin's own network namespace, which is never changed; pass the pod's, or set CNI_NETNS_OVERRIDE", path)
}

// HasInterface reports whether the pod has an interface of that name. A
// namespace that is gone has none.
func (d *Dataplane) HasInterface(namespace, ifName string) (bool, error) {
	if namespace == "" {
		return false, nil
	}
	ns, err := openNamespace(namespace)
	if errors.Is(err, errNoNamespace) {
		return false, nil
	}
	if err != nil {
		return false, refused(err, "opening network namespace %s", namespace)
	}
	defer ns.Close()
	sock, err := d.kernel.dial(context.Background(), ns)
	if err != nil {
		return false, refused(err, "opening a netlink socket in network namespace %s", namespace)
	}
	defer sock.Close()
	_, exists, err := lookUp(sock.LinkByName(ifName))
	if err != nil {
		return false, refused(err, "looking up interface %s in network namespace %s", ifName, namespace)
	}
	return exists, nil
}

// Confirm fails with code 118 if a link that Add made is gone: a newer sandbox
// of the pod has replaced it, or somebody deleted it.
func (d *Dataplane) Confirm(ctx context.Context, made dataplane.Link) error {
	s, err := d.openHost(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	_, exists, err := lookUp(s.host.LinkByIndex(made.Index))
	if err != nil {
		return refused(err, "looking up host interface %s (index %d)", made.HostInterface, made.Index)
	}
	if !exists {
		return errGone(made.HostInterface, made.Index)
	}
	return nil
}

func errGone(name string, index int) *cnierr.Error {
	return cnierr.New(cnierr.Overtaken,
		"host interface %s (index %d) that this ADD made is gone: a newer sandbox of the pod replaced it, or the sandbox was torn down; nothing is to be done", name, index)
}

// Undo removes a link that Add made; one that is gone is no error.
func (d *Dataplane) Undo(ctx context.Context, made dataplane.Link) error {
	s, err := d.openHost(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	return notGone(s.deleteLink(ctx, made.HostInterface, made.Index))
}

// notGone drops the error of deleting what is not there any more.
func notGone(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
