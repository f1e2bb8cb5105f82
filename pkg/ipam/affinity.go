package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Why the affinity of a block was not released (IPAM contract 3.3).
var (
	ErrBlockNotEmpty = errors.New("block is not empty")
	ErrClaimConflict = errors.New("block is claimed by another owner")
)

// releaseAffinity plans the end of a host's claim on a block: the block is
// deleted if it is empty, else it stays without an owner (IPAM contract 3.3,
// 5.2).
func releaseAffinity(f *facts, key model.AffinityKey) *plan {
	p := &plan{takesBack: true}
	if affinity := f.affinities[key]; affinity.value != nil {
		p.released = []edit{{key: key, revision: affinity.revision}}
	} else {
		p.guards = []edit{{key: key}}
	}
	known := f.blocks[key.CIDR]
	blockKey := model.BlockKey{CIDR: key.CIDR}
	switch {
	case known.value == nil || known.value.Affinity != key.Owner() && known.value.Affinity != "":
		p.guards = append(p.guards, edit{key: blockKey, revision: known.revision})
	case known.value.Empty():
		p.blocks = []edit{{key: blockKey, revision: known.revision}}
	case known.value.Affinity == "":
		p.guards = append(p.guards, edit{key: blockKey, revision: known.revision})
	default:
		block := known.value.Clone()
		block.Disown()
		block.Stamp()
		p.blocks = []edit{{blockKey, block, known.revision}}
	}
	return p
}

// affinityRelease is the decision to end a host's claim on a block.
type affinityRelease struct {
	facts       *facts
	key         model.AffinityKey
	mustBeEmpty bool
	// unlessSelected keeps the claim while an enabled pool that holds the
	// block selects the node.
	unlessSelected bool
	conflict       bool
}

func (d *affinityRelease) queries() []datastore.Query {
	// The configuration, because an address that cools down makes the block
	// non-empty.
	queries := gets([]model.Key{model.IPAMConfigKey{}, d.key, model.BlockKey{CIDR: d.key.CIDR}})
	if d.unlessSelected {
		queries = append(queries, datastore.Get{Key: model.ResourceKey{Kind: model.KindNode, Name: d.key.Host}},
			datastore.ListResources{Kind: model.KindIPPool})
	}
	return queries
}

func (d *affinityRelease) decide() (decision, error) {
	affinity, block := d.facts.affinities[d.key].value, d.facts.blocks[d.key.CIDR].value
	mine := block != nil && block.Affinity == d.key.Owner()
	switch {
	case affinity == nil && !mine:
		return decision{}, nil
	case d.unlessSelected && !d.unselected():
		return decision{}, nil
	case d.mustBeEmpty && mine && !block.Empty():
		return decision{}, fmt.Errorf("releasing the %s: %w", d.key, ErrBlockNotEmpty)
	}
	d.conflict = block != nil && !mine && block.Affinity != ""
	return decision{final: releaseAffinity(d.facts, d.key)}, nil
}

func (d *affinityRelease) unselected() bool {
	p, ok := poolOf(enabled(d.facts.pools), d.key.CIDR.Addr())
	return ok && d.facts.node != nil && !selectsNode(p, d.facts.node)
}

// releaseAffinity reads, decides and writes the release of one affinity. An
// affinity that does not exist is nothing to release; one for a block of
// another owner is deleted, which is ErrClaimConflict.
func (a *Allocator) releaseAffinity(ctx context.Context, d *affinityRelease) error {
	e := a.engine(d.key.Host)
	d.facts = e.facts
	if err := e.read(ctx, d.queries()...); err != nil {
		return err
	}
	if err := e.run(ctx, d.decide); err != nil {
		return err
	}
	if d.conflict {
		return fmt.Errorf("releasing the %s: %w", d.key, ErrClaimConflict)
	}
	return nil
}

// returnUnselected gives back blocks that became empty and whose pool no
// longer selects their node (IPAM contract 6, consistency check). Failures
// are logged only: the addresses are released.
func (e *engine) returnUnselected(ctx context.Context, touched []netip.Prefix) {
	for _, cidr := range touched {
		block := e.facts.blocks[cidr].value
		host, ok := hostOf(block)
		if !ok || !block.Empty() || e.facts.staysWith(host, cidr) {
			continue
		}
		d := &affinityRelease{
			key:         model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: cidr},
			mustBeEmpty: true, unlessSelected: true,
		}
		if err := e.releaseAffinity(ctx, d); err != nil {
			e.log.Warn("an empty block whose pool does not select its node was not given back", "block", cidr, "host", host, "error", err)
		}
	}
}

// staysWith reports whether it is known already that a host keeps a block,
// empty or not: the node was read, and no enabled pool refuses it.
func (f *facts) staysWith(host string, cidr netip.Prefix) bool {
	if f.node == nil || f.host != host {
		return false
	}
	p, ok := poolOf(enabled(f.pools), cidr.Addr())
	return !ok || selectsNode(p, f.node)
}

// hostOf returns the host that owns a block; there may be no block.
func hostOf(block *model.Block) (string, bool) {
	const prefix = model.AffinityHost + ":"
	if block == nil || len(block.Affinity) <= len(prefix) || block.Affinity[:len(prefix)] != prefix {
		return "", false
	}
	return block.Affinity[len(prefix):], true
}

// ReleaseBlockAffinity makes a block ownerless, or deletes it if it is empty.
// A block without an owner is left alone.
func (a *Allocator) ReleaseBlockAffinity(ctx context.Context, cidr netip.Prefix, mustBeEmpty bool) error {
	answers, err := a.store.Read(ctx, datastore.Get{Key: model.BlockKey{CIDR: cidr.Masked()}})
	if err != nil {
		return err
	}
	block, _ := datastore.One[model.Block](answers[0])
	key, ok := ownerKey(block)
	if !ok {
		return nil
	}
	return a.releaseAffinity(ctx, &affinityRelease{key: key, mustBeEmpty: mustBeEmpty})
}

// ownerKey is the affinity that belongs to a block's owner.
func ownerKey(block *model.Block) (model.AffinityKey, bool) {
	if block == nil {
		return model.AffinityKey{}, false
	}
	for _, kind := range []string{model.AffinityHost, model.AffinityVirtual} {
		if prefix := kind + ":"; len(block.Affinity) > len(prefix) && block.Affinity[:len(prefix)] == prefix {
			return model.AffinityKey{Type: kind, Host: block.Affinity[len(prefix):], CIDR: block.CIDR}, true
		}
	}
	return model.AffinityKey{}, false
}

// ReleaseAffinity ends a host's claims on the blocks inside cidr, which must
// begin in an enabled pool and hold at least one block (IPAM contract 6).
// Blocks that are not the host's are passed over.
func (a *Allocator) ReleaseAffinity(ctx context.Context, cidr netip.Prefix, host string, mustBeEmpty bool) error {
	if host == "" {
		return errors.New("releasing affinities: the host has no name")
	}
	family := model.FamilyOf(cidr.Addr())
	e := a.engine(host)
	if err := e.read(ctx, datastore.ListResources{Kind: model.KindIPPool}, ownAffinities(host, family)); err != nil {
		return err
	}
	if _, err := poolForBlocks(e.facts.pools, cidr); err != nil {
		return err
	}
	for _, own := range e.facts.own(family) {
		if !inside(own, cidr) {
			continue
		}
		d := &affinityRelease{key: e.facts.affinityKey(own), mustBeEmpty: mustBeEmpty}
		if err := a.releaseAffinity(ctx, d); err != nil && !errors.Is(err, ErrClaimConflict) {
			return err
		}
	}
	return nil
}

func inside(block, cidr netip.Prefix) bool {
	return block.Bits() >= cidr.Bits() && cidr.Contains(block.Addr())
}

// poolForBlocks returns the enabled pool that cidr begins in.
func poolForBlocks(pools []pool, cidr netip.Prefix) (pool, error) {
	p, ok := poolOf(enabled(pools), cidr.Addr())
	if !ok {
		return pool{}, fmt.Errorf("%s begins in no enabled pool: %w", cidr, datastore.ErrNotFound)
	}
	if cidr.Bits() > p.BlockSize {
		return pool{}, fmt.Errorf("%s is smaller than a block of %s", cidr, p)
	}
	return p, nil
}

// ReleaseHostAffinities ends all claims of an owner, of both families. It goes
// on after a failure and returns all of them; claims on blocks of other owners
// are dropped silently.
func (a *Allocator) ReleaseHostAffinities(ctx context.Context, kind, host string, mustBeEmpty bool) error {
	if host == "" {
		return errors.New("releasing affinities: the host has no name")
	}
	_, err := a.releaseAll(ctx, func(model.AffinityKey) bool { return true }, mustBeEmpty,
		datastore.ListAffinities{Type: kind, Host: host, Family: model.IPv4},
		datastore.ListAffinities{Type: kind, Host: host, Family: model.IPv6})
	return err
}

// ReleasePoolAffinities ends the claims of all owners on blocks inside cidr,
// before its pool is deleted. While it meets blocks of other owners than their
// affinity's, claims are being made, and it looks again.
func (a *Allocator) ReleasePoolAffinities(ctx context.Context, cidr netip.Prefix) error {
	family := model.FamilyOf(cidr.Addr())
	for range maxRounds {
		conflicts, err := a.releaseAll(ctx, func(key model.AffinityKey) bool { return inside(key.CIDR, cidr) }, false,
			datastore.ListAffinities{Type: model.AffinityHost, Family: family},
			datastore.ListAffinities{Type: model.AffinityVirtual, Family: family})
		if err != nil || !conflicts {
			return err
		}
	}
	return fmt.Errorf("releasing the affinities in %s: %w", cidr, ErrClaimConflict)
}

func (a *Allocator) releaseAll(ctx context.Context, wanted func(model.AffinityKey) bool, mustBeEmpty bool, lists ...datastore.Query) (conflicts bool, err error) {
	answers, err := a.store.Read(ctx, lists...)
	if err != nil {
		return false, err
	}
	var failures []error
	for _, answer := range answers {
		for _, entry := range answer.Entries {
			key, ok := entry.Key.(model.AffinityKey)
			if !ok || !wanted(key) {
				continue
			}
			switch err := a.releaseAffinity(ctx, &affinityRelease{key: key, mustBeEmpty: mustBeEmpty}); {
			case errors.Is(err, ErrClaimConflict):
				conflicts = true
			case err != nil:
				failures = append(failures, err)
			}
		}
	}
	return conflicts, errors.Join(failures...)
}

// RemoveHost ends all claims of a host, empty or not, and removes what old
// releases left in etcd to mark it. It frees no address.
func (a *Allocator) RemoveHost(ctx context.Context, host string) error {
	if err := a.ReleaseHostAffinities(ctx, model.AffinityHost, host, false); err != nil || !a.store.Transactional() {
		return err
	}
	remove := datastore.Step{datastore.Remove(model.HostMarkerKey{Host: host}, datastore.Any)}
	_, err := a.store.Write(ctx, remove)
	if unknownOutcome(err) {
		_, err = a.store.Write(ctx, remove) // whatever is there goes: it may be repeated
	}
	return err
}

// ClaimAffinity claims the blocks inside cidr for a host and tells which it
// got (IPAM contract 6).
func (a *Allocator) ClaimAffinity(ctx context.Context, cidr netip.Prefix, host string) (claimed, failed []netip.Prefix, err error) {
	e := a.engine(host)
	err = e.read(ctx, datastore.Get{Key: model.IPAMConfigKey{}}, datastore.ListResources{Kind: model.KindIPPool})
	if err != nil {
		return nil, nil, err
	}
	p, err := poolForBlocks(e.facts.pools, cidr)
	if err != nil {
		return nil, nil, err
	}
	blocks := blockRange{pool: cidr.Masked(), bits: p.BlockSize}
	const most = 1 << 16
	if newUint128(most).less(blocks.count()) {
		return nil, nil, fmt.Errorf("%s has %s blocks, too many to claim", cidr, blocks.count().big())
	}
	for i := range blocks.count().limited(most) {
		block := blocks.at(newUint128(i))
		d := &blockClaim{facts: e.facts, block: block, pool: p.Metadata.Name}
		if err := e.run(ctx, d.decide); err != nil {
			failed = append(failed, block)
			if !errors.Is(err, ErrClaimConflict) {
				return claimed, failed, err
			}
			continue
		}
		claimed = append(claimed, block)
	}
	return claimed, failed, nil
}

// blockClaim is the decision to claim one certain block without taking an
// address from it.
type blockClaim struct {
	facts *facts
	block netip.Prefix
	pool  string
}

func (d *blockClaim) decide() (decision, error) {
	key := d.facts.affinityKey(d.block)
	if !d.facts.known(d.block) {
		queries := append(gets([]model.Key{key, model.BlockKey{CIDR: d.block}}), groupQueries(groupOf(d.block))...)
		return decision{needs: queries}, nil
	}
	at := slices.IndexFunc(d.facts.pools, func(p pool) bool { return p.Metadata.Name == d.pool })
	block := d.facts.blocks[d.block].value
	draft := newDraft(d.facts, "", nil)
	switch {
	case block == nil && (at < 0 || d.facts.census.overlaps(d.block)):
		return decision{}, fmt.Errorf("claiming block %s: %w", d.block, ErrClaimConflict)
	case block == nil:
		draft.claimed(d.block, d.facts.pools[at], nil)
	case block.Affinity != d.facts.owner():
		return decision{}, fmt.Errorf("claiming block %s, which %q owns: %w", d.block, block.Affinity, ErrClaimConflict)
	case d.facts.unconfirmed(d.block):
		draft.own(d.block)
	}
	return decision{final: draft.plan()}, nil
}
