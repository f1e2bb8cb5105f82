package windows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
)

// Dataplane connects pods of this host. It holds no resources between calls.
type Dataplane struct {
	Options
	log *slog.Logger
}

var _ dataplane.Dataplane = (*Dataplane)(nil)

// New returns a data plane. It does nothing yet.
func New(options Options) *Dataplane {
	if options.Pause == nil {
		options.Pause = pause
	}
	options.Service = steady{options.Service}
	log := options.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Dataplane{Options: options, log: log}
}

func pause(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// refused gives a failure of the host the code of its kind and says what was
// being done. A code that is there already stays.
func refused(err error, format string, args ...any) error {
	return cnierr.Wrap(cnierr.HNSRefused, err, fmt.Sprintf(format, args...))
}

// Validate reports whether CNI_NETNS can be a namespace of HNS: a GUID. What
// dockershim passed is refused (Windows data plane contract, orientation).
func (d *Dataplane) Validate(namespace string) error {
	if isGUID(namespace) {
		return nil
	}
	return cnierr.New(cnierr.InvalidEnvironment,
		"CNI_NETNS: %q is no HNS namespace, which has a GUID: use containerd 1.6 or later; dockershim's \"none\" and \"container:<id>\" are not supported", namespace)
}

func isGUID(text string) bool {
	groups := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}"), "-")
	if len(groups) != 5 {
		return false
	}
	for i, length := range []int{8, 4, 4, 4, 12} {
		if len(groups[i]) != length || strings.Trim(groups[i], hexDigits) != "" {
			return false
		}
	}
	return true
}

// HasInterface reports whether the namespace holds an endpoint of this network.
// Which name it has in the pod is not known to HNS.
func (d *Dataplane) HasInterface(namespace, _ string) (bool, error) {
	if !isGUID(namespace) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	found, err := d.Service.NamespaceByID(ctx, namespace)
	if hns.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, refused(err, "looking up HNS namespace %s", namespace)
	}
	for _, id := range found.EndpointIDs() {
		endpoint, err := d.Service.EndpointByID(ctx, id)
		if hns.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, refused(err, "looking up the endpoint %s of HNS namespace %s", id, namespace)
		}
		if _, ours := d.containerOf(endpoint.Name); ours {
			return true, nil
		}
	}
	return false, nil
}

// lookTime bounds a look-up for which the caller has no deadline.
const lookTime = 15 * time.Second

// Confirm fails with code 118 if the endpoint that Add made is gone.
func (d *Dataplane) Confirm(ctx context.Context, made dataplane.Link) error {
	_, err := d.Service.EndpointByID(ctx, made.ID)
	if hns.IsNotFound(err) {
		return cnierr.New(cnierr.Overtaken,
			"HNS endpoint %s that this ADD made is gone: the sandbox was torn down, or its network removed; nothing is to be done", made.ID)
	}
	return refused(err, "looking up HNS endpoint %s", made.ID)
}

// Undo removes the endpoint that Add made; one that is gone is no error.
func (d *Dataplane) Undo(ctx context.Context, made dataplane.Link) error {
	endpoint, err := d.Service.EndpointByID(ctx, made.ID)
	if hns.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return refused(err, "looking up HNS endpoint %s", made.ID)
	}
	return d.removeEndpoint(ctx, endpoint)
}

// removeEndpoint detaches and deletes an endpoint. What is gone already is no
// error; a namespace that is gone leaves nothing to detach from.
func (d *Dataplane) removeEndpoint(ctx context.Context, endpoint hns.Endpoint) error {
	if endpoint.Attached() {
		if err := d.Service.Detach(ctx, endpoint.HostComputeNamespace, endpoint.ID); err != nil && !hns.IsNotFound(err) {
			return refused(err, "detaching HNS endpoint %s from namespace %s", describe(endpoint), endpoint.HostComputeNamespace)
		}
	}
	if err := d.Service.DeleteEndpoint(ctx, endpoint.ID); err != nil && !hns.IsNotFound(err) {
		return refused(err, "deleting HNS endpoint %s", describe(endpoint))
	}
	return nil
}

// lockTime is the longest wait for the network lock ("where we go beyond the
// reference" 3).
const lockTime = 90 * time.Second

// lock takes the host's network lock.
func (d *Dataplane) lock(ctx context.Context) (unlock func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	unlock, err = d.Host.Lock(waiting)
	switch {
	case errors.Is(err, hns.ErrLockHeld):
		return nil, cnierr.New(cnierr.LockNotObtained,
			"taking the network lock of this host: %w; find the process that holds it, a plugin or node agent that hangs, and end it", err)
	case err != nil:
		return nil, cnierr.New(cnierr.LockNotObtained, "taking the network lock of this host: %w", err)
	}
	return unlock, nil
}
