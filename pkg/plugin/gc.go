package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/nodename"
	"calico-cni/pkg/workload"
)

// remembered bounds what is kept of the search for stale addresses until the
// IPAM plugin repeats it: a first batch of blocks and what leads to them.
const remembered = 64

// collection is one GC.
type collection struct {
	*serving
	valid []types.GCAttachment
	// failures are reported together when everything else is done; many are of
	// single objects, which the report groups by their cause.
	failures []error
	many     []cnierr.Failure
}

// GC removes what attachments left behind that the runtime does not know any
// more: record, interface, addresses (Linux data plane contract 9.3). It goes
// on after an error.
func (p *Plugin) GC(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	s.WarnPlaceholders()
	if err := nodename.Certain(s.Conf); err != nil {
		return err
	}
	if err := s.identify(); err != nil {
		return err
	}
	valid, present, err := s.Conf.ValidAttachments()
	if err != nil {
		return err
	}
	if s.Conf.DisableGC {
		return nil
	}
	if err := s.findIPAM(); err != nil {
		return err
	}
	c := &collection{serving: s, valid: valid}
	return c.run(ctx, present)
}

func (c *collection) run(ctx context.Context, present bool) error {
	if c.ipam.inProcess() && present {
		if err := c.Lock(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Conf.Timeout())
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		return connect.Explain(err)
	}
	store := c.Store
	if present {
		memory, err := c.look(ctx)
		if err != nil {
			return connect.Explain(err)
		}
		c.collect(ctx, memory)
		store = memory.Replay()
	}
	call := *c.Call
	var err error
	if call.Stdin, err = c.ipamDocument(); err == nil {
		_, err = c.callIPAM(ctx, &call, store)
	}
	if err != nil && !c.ipam.inProcess() && unknownVerb(err) {
		c.Log.Warn("the IPAM plugin does not know GC: its addresses are not looked at", "error", err)
		err = nil
	}
	c.note(err)
	if present {
		c.note(c.disableHost(ctx))
	}
	return c.outcome()
}

// look fails with code 11 unless the cluster is ready. The returned store holds
// what the search for stale addresses reads first, and remembers what it finds
// for the IPAM plugin in this process.
func (c *collection) look(ctx context.Context) (*datastore.Memory, error) {
	var queries []datastore.Query
	if c.Conf.IPAM.Type == netconf.IPAMCalico {
		queries = ipam.StaleQueries(c.ID.Node)
	}
	answers, store, err := datastore.Prefetch(ctx, c.Store, []datastore.Query{readyQuery()}, queries)
	if err != nil && ctx.Err() == nil {
		// What only the search asks must not keep the rest from being done.
		store = c.Store
		answers, err = store.Read(ctx, readyQuery())
	}
	if err != nil {
		return nil, err
	}
	return datastore.Remember(store, remembered), ready(answers[0])
}

func (c *collection) note(err error) {
	if err != nil {
		c.failures = append(c.failures, err)
	}
}

// fail notes the failure of one object of many.
func (c *collection) fail(doing, object string, err error) {
	c.Log.Warn("GC goes on after a failure", "doing", doing, "object", object, "error", err)
	c.many = append(c.many, cnierr.Failure{Doing: doing, Object: object, Err: err})
}

// outcome is one error as it is, several as one without code of its own.
func (c *collection) outcome() error {
	failures := append(cnierr.Group(c.many), c.failures...)
	switch len(c.many) + len(c.failures) {
	case 0:
		return nil
	case 1:
		return connect.Explain(failures[0])
	}
	return cnierr.New(cnierr.Unclassified, "GC of network %s failed in part; everything else was done: %w", c.Conf.Name, errors.Join(failures...))
}

// collect removes records and interfaces. The addresses are the IPAM plugin's.
func (c *collection) collect(ctx context.Context, store datastore.Store) {
	owned, err := c.dataplane.Owned(ctx)
	c.note(err)
	c.collectRecords(ctx, store, owned)
	for _, found := range owned {
		if !found.Owner.InNetwork(c.Conf.Name) || c.isValid(found.Owner) {
			continue
		}
		if err := c.dataplane.Remove(ctx, found); err != nil {
			c.fail("removing from the host", fmt.Sprintf("%s of %s", found.HostInterface, found.Owner), err)
			continue
		}
		c.Log.Info("removed the interface of an attachment that is gone", "host_interface", found.HostInterface, "owner", found.Owner.String())
	}
}

func (c *collection) isValid(owner workload.Owner) bool {
	return slices.ContainsFunc(c.valid, func(v types.GCAttachment) bool {
		return owner.Is(workload.Attachment{Network: c.Conf.Name, ContainerID: v.ContainerID, IfName: v.IfName})
	})
}
