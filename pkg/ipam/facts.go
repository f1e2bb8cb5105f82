package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// object is one object as it was last seen; a nil value is known to be absent.
type object[T any] struct {
	value    *T
	revision datastore.Revision
}

// facts are everything that was read for one verb. Decisions are functions of
// them: what they lack, a decision asks for, and is then taken again.
type facts struct {
	now  time.Time
	host string

	config    *model.IPAMConfig
	configRev datastore.Revision
	node      *model.Node
	pools     []pool
	// checked pools hold no block of another size.
	checked    map[CheckedPool]bool
	reserved   spans
	affinities map[model.AffinityKey]object[model.Affinity]
	blocks     map[netip.Prefix]object[model.Block]
	// unreadable blocks exist and are passed over.
	unreadable map[netip.Prefix]bool
	handles    map[string]object[model.Handle]
	census     *census
	answered   map[datastore.Query]datastore.Answer
	// missed are blocks that other processes of this host have claimed since its
	// affinities were read, and outdated are the answers that lack them.
	missed   map[netip.Prefix]bool
	outdated map[datastore.Query]bool
	walks    map[model.Family]*walk
	// obtained are addresses that this verb has already written; surplus is
	// what it has counted in the handle beyond them.
	obtained     map[netip.Prefix][]netip.Addr
	surplus      map[netip.Prefix]int
	warnings     []string
	poolWarnings map[string]bool
}

func newFacts(now time.Time, host string) *facts {
	return &facts{
		now: now, host: host,
		config:       model.DefaultIPAMConfig(),
		affinities:   map[model.AffinityKey]object[model.Affinity]{},
		blocks:       map[netip.Prefix]object[model.Block]{},
		unreadable:   map[netip.Prefix]bool{},
		handles:      map[string]object[model.Handle]{},
		census:       newCensus(),
		answered:     map[datastore.Query]datastore.Answer{},
		missed:       map[netip.Prefix]bool{},
		outdated:     map[datastore.Query]bool{},
		walks:        map[model.Family]*walk{},
		obtained:     map[netip.Prefix][]netip.Addr{},
		surplus:      map[netip.Prefix]int{},
		poolWarnings: map[string]bool{},
	}
}

func (f *facts) owner() string { return model.AffinityHost + ":" + f.host }

func (f *facts) cooldown() time.Duration {
	return time.Duration(f.config.CooldownSeconds) * time.Second
}

func (f *facts) affinityKey(cidr netip.Prefix) model.AffinityKey {
	return model.AffinityKey{Type: model.AffinityHost, Host: f.host, CIDR: cidr}
}

// own returns the blocks that this host has an affinity for, in whatever
// state, in the order of their keys.
func (f *facts) own(family model.Family) []netip.Prefix {
	var cidrs []netip.Prefix
	for _, key := range f.affinityKeys() {
		if f.affinities[key].value != nil && key.Host == f.host && key.Type == model.AffinityHost && model.FamilyOf(key.CIDR.Addr()) == family {
			cidrs = append(cidrs, key.CIDR)
		}
	}
	return cidrs
}

// affinityKeys are those of all affinities asked for, in the order of their
// text: what is decided must not hang on the order of a map.
func (f *facts) affinityKeys() []model.AffinityKey {
	return slices.SortedFunc(maps.Keys(f.affinities), func(a, b model.AffinityKey) int { return strings.Compare(a.Path(), b.Path()) })
}

// learn records the answers of a read. Configuration precedes blocks, because
// collecting a block's released addresses needs the cooldown.
func (f *facts) learn(queries []datastore.Query, answers []datastore.Answer) {
	order := make([]int, len(queries))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rank(queries[a]) - rank(queries[b]) })
	for _, i := range order {
		f.learnAnswer(queries[i], answers[i])
	}
}

func rank(query datastore.Query) int {
	if query == (datastore.Get{Key: model.IPAMConfigKey{}}) {
		return 0
	}
	return 1
}

func (f *facts) learnAnswer(query datastore.Query, answer datastore.Answer) {
	switch q := query.(type) {
	case datastore.Get:
		if len(answer.Entries) == 0 {
			f.learnAbsent(q.Key)
		}
		if key, ok := q.Key.(model.AffinityKey); ok {
			delete(f.missed, key.CIDR)
		}
	case datastore.ListAffinities:
		f.forgetAffinities(q)
	case datastore.ListResources:
		f.learnList(q.Kind, answer)
		return
	case datastore.ListBlocks:
		f.answered[query] = datastore.Answer{More: answer.More}
	}
	for _, entry := range answer.Entries {
		f.learnEntry(entry)
	}
}

func (f *facts) forgetAffinities(q datastore.ListAffinities) {
	for key := range f.affinities {
		if key.Type == q.Type && (q.Host == "" || key.Host == q.Host) && model.FamilyOf(key.CIDR.Addr()) == q.Family {
			delete(f.affinities, key)
		}
	}
	f.answered[q] = datastore.Answer{}
	delete(f.outdated, q)
}

// learnEntry records one object that exists.
func (f *facts) learnEntry(entry datastore.Entry) {
	switch key := entry.Key.(type) {
	case model.BlockKey:
		f.census.add(key.CIDR)
		if value, ok := entry.Value.(*model.Block); ok && value != nil {
			value = value.Clone()
			value.Collect(f.now, f.cooldown())
			f.blocks[key.CIDR] = object[model.Block]{value, entry.Revision}
		} else if f.blocks[key.CIDR].value == nil {
			delete(f.blocks, key.CIDR) // it was absent when it was read
		}
	case model.AffinityKey:
		value, _ := entry.Value.(*model.Affinity)
		f.affinities[key] = object[model.Affinity]{value, entry.Revision}
	case model.HandleKey:
		value, _ := entry.Value.(*model.Handle)
		f.handles[key.ID] = object[model.Handle]{value, entry.Revision}
	case model.IPAMConfigKey:
		if value, ok := entry.Value.(*model.IPAMConfig); ok && value != nil {
			f.config, f.configRev = value, entry.Revision
		}
	case model.ResourceKey:
		f.learnResource(key, entry)
	}
}

func (f *facts) learnResource(key model.ResourceKey, entry datastore.Entry) {
	switch value := entry.Value.(type) {
	case *model.Node:
		if key.Name == f.host {
			f.node = value
		}
	case *model.IPPool:
		f.dropPool(key.Name)
		f.addPool(value, entry.Revision)
	}
}

// learnAbsent records that an object does not exist.
func (f *facts) learnAbsent(key model.Key) {
	switch key := key.(type) {
	case model.BlockKey:
		f.census.remove(key.CIDR)
		f.blocks[key.CIDR] = object[model.Block]{}
	case model.AffinityKey:
		f.affinities[key] = object[model.Affinity]{}
	case model.HandleKey:
		f.handles[key.ID] = object[model.Handle]{}
	case model.IPAMConfigKey:
		f.config, f.configRev = model.DefaultIPAMConfig(), datastore.Absent
	case model.ResourceKey:
		if key.Kind == model.KindIPPool {
			f.dropPool(key.Name)
		}
		if key.Kind == model.KindNode && key.Name == f.host {
			f.node = nil
		}
	}
}

func (f *facts) learnList(kind model.Kind, answer datastore.Answer) {
	switch kind {
	case model.KindIPPool:
		f.pools = nil
		for _, entry := range answer.Entries {
			if object, ok := entry.Value.(*model.IPPool); ok {
				f.addPool(object, entry.Revision)
			}
		}
	case model.KindIPReservation:
		f.learnReservations(answer)
	}
}

func (f *facts) learnReservations(answer datastore.Answer) {
	var cidrs []netip.Prefix
	for _, entry := range answer.Entries {
		reservation, ok := entry.Value.(*model.IPReservation)
		if !ok {
			continue
		}
		found, malformed := reservation.Prefixes()
		cidrs = append(cidrs, found...)
		for _, text := range malformed {
			f.warnings = append(f.warnings, fmt.Sprintf("reservation %s: %q is no CIDR and is ignored", reservation.Metadata.Name, text))
		}
	}
	f.reserved = newSpans(cidrs)
}

// addPool keeps the pools in name order. A pool that no block can be cut from
// is left out with one warning; the others work.
func (f *facts) addPool(object *model.IPPool, revision datastore.Revision) {
	p, err := newPool(object, revision)
	if err != nil {
		if !f.poolWarnings[err.Error()] {
			f.poolWarnings[err.Error()] = true
			f.warnings = append(f.warnings, err.Error()+"; the pool is not used")
		}
		return
	}
	at, _ := slices.BinarySearchFunc(f.pools, p.Metadata.Name, func(p pool, name string) int {
		return strings.Compare(p.Metadata.Name, name)
	})
	f.pools = slices.Insert(f.pools, at, p)
}

func (f *facts) dropPool(name string) {
	f.pools = slices.DeleteFunc(f.pools, func(p pool) bool { return p.Metadata.Name == name })
}

// learnConflict takes over the current values of the guarded keys, so that the
// decision can be taken again without a read. It reports false if the engine
// could not tell them.
func (f *facts) learnConflict(conflict *datastore.ConflictError, guarded []model.Key) bool {
	if conflict.Current == nil {
		return false
	}
	for _, key := range guarded {
		if entry, ok := conflict.Current[key]; ok {
			f.learnEntry(entry)
		} else {
			f.learnAbsent(key)
		}
	}
	return true
}

// learnWritten takes over what a plan has written.
func (f *facts) learnWritten(p *plan, written datastore.Written) {
	for _, c := range p.claims {
		if c.write {
			f.learnEntry(datastore.Entry{Key: c.key, Value: confirmed(), Revision: written[c.key]})
		}
	}
	for _, edits := range [][]edit{p.released, p.blocks, p.handles} {
		for _, e := range edits {
			if e.value == nil {
				f.learnAbsent(e.key)
				continue
			}
			f.learnEntry(datastore.Entry{Key: e.key, Value: e.value, Revision: written[e.key]})
		}
	}
	for cidr, addresses := range p.taken {
		f.obtained[cidr] = append(f.obtained[cidr], addresses...)
	}
	if !p.takesBack {
		f.surplus = map[netip.Prefix]int{}
	}
}

// lostRace forgets this host's affinities if a block to be claimed went to
// someone else: another process of this host may have claimed a block with
// room (IPAM contract 4 E 4).
func (f *facts) lostRace(p *plan) {
	for _, c := range p.claims {
		block := f.blocks[c.key.CIDR].value
		if c.write && block != nil && block.Affinity != c.key.Owner() {
			delete(f.answered, ownAffinities(c.key.Host, model.FamilyOf(c.key.CIDR.Addr())))
		}
	}
}

func ownAffinities(host string, family model.Family) datastore.Query {
	return datastore.ListAffinities{Type: model.AffinityHost, Host: host, Family: family}
}

// known reports whether a block has been read, be it absent or unreadable.
func (f *facts) known(cidr netip.Prefix) bool {
	_, ok := f.blocks[cidr]
	return ok || f.unreadable[cidr]
}

// unconfirmed reports whether a block of ours still lacks its affinity: an
// engine without transactions may stop in between.
func (f *facts) unconfirmed(cidr netip.Prefix) bool {
	affinity := f.affinities[f.affinityKey(cidr)].value
	block := f.blocks[cidr].value
	return block != nil && block.Affinity == f.owner() && (affinity == nil || !affinity.State.Confirmed())
}
