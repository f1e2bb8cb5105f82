package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// EnsureBlock makes sure that a host owns a block of each family that a
// reservation is given for, and returns these blocks (IPAM contract 6). No
// limit of blocks applies.
func (a *Allocator) EnsureBlock(ctx context.Context, host string, reserve4, reserve6 *Reservation) ([]netip.Prefix, error) {
	r := Request{Host: host, Use: model.UseWorkload, Reserve: reserve4, Reserve6: reserve6}
	var out []netip.Prefix
	for _, family := range []model.Family{model.IPv4, model.IPv6} {
		if r.reserve(family) == nil {
			continue
		}
		block, err := a.ensureBlock(ctx, &r, family)
		if err != nil {
			return out, fmt.Errorf("ensuring that %s owns an %s block: %w", host, family, err)
		}
		out = append(out, block)
	}
	return out, nil
}

func (a *Allocator) ensureBlock(ctx context.Context, r *Request, family model.Family) (netip.Prefix, error) {
	e := a.engine(r.Host)
	e.fetch = e.readPassing
	e.loadChecked()
	if err := e.read(ctx, append(AssignQueries(*r), ownAffinities(r.Host, family))...); err != nil {
		return netip.Prefix{}, err
	}
	var block netip.Prefix
	err := e.run(ctx, func() (decision, error) {
		d := &assignment{request: r, facts: e.facts, transactional: a.store.Transactional()}
		if err := d.check(); err != nil {
			return decision{}, err
		}
		draft := newDraft(e.facts, "", nil)
		s := d.search(family, draft)
		s.ensure = true
		if err := s.run(); err != nil || s.waiting() {
			return decision{needs: s.needs, side: s.side}, err
		}
		if block = s.ensured; !block.IsValid() {
			return decision{}, cnierr.New(cnierr.AddressesExhausted, "failed to find or claim a block for host %s", r.Host)
		}
		return decision{final: draft.unwrittenOnly()}, nil
	})
	return block, err
}

// unwrittenOnly is the draft's plan without blocks that need no change.
func (d *draft) unwrittenOnly() *plan {
	for _, b := range d.blocks {
		if b.claim != nil && b.claim.write {
			return d.plan()
		}
	}
	return nil
}

// SetConfig changes the cluster's IPAM configuration (IPAM contract 6). A
// change that changes nothing writes nothing.
func (a *Allocator) SetConfig(ctx context.Context, change func(*model.IPAMConfig)) error {
	e := a.engine("")
	if err := e.read(ctx, datastore.Get{Key: model.IPAMConfigKey{}}); err != nil {
		return err
	}
	return e.run(ctx, func() (decision, error) {
		config := *e.facts.config
		change(&config)
		if sameConfig(&config, e.facts.config) {
			return decision{}, nil
		}
		if err := checkConfig(&config); err != nil {
			return decision{}, fmt.Errorf("changing the IPAM configuration: %w", err)
		}
		return decision{final: &plan{takesBack: true, blocks: []edit{{model.IPAMConfigKey{}, &config, e.facts.configRev}}}}, nil
	})
}

func sameConfig(a, b *model.IPAMConfig) bool {
	return a.StrictAffinity == b.StrictAffinity && a.AutoAllocateBlocks == b.AutoAllocateBlocks &&
		a.MaxBlocksPerHost == b.MaxBlocksPerHost && a.CooldownSeconds == b.CooldownSeconds && a.VMPersistence == b.VMPersistence
}

func checkConfig(c *model.IPAMConfig) error {
	switch {
	case !c.StrictAffinity && !c.AutoAllocateBlocks:
		return errors.New("strict affinity and automatic allocation of blocks cannot both be off")
	case c.MaxBlocksPerHost > 0 && !c.StrictAffinity:
		return errors.New("a limit of blocks per host needs strict affinity")
	case c.MaxBlocksPerHost < 0:
		return errors.New("the limit of blocks per host is negative")
	}
	return nil
}
