package contracttest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

const host = "worker-b"

func blockKey(cidr string) model.BlockKey { return model.BlockKey{CIDR: netip.MustParsePrefix(cidr)} }

func affinityKey(host, cidr string) model.AffinityKey {
	return model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: netip.MustParsePrefix(cidr)}
}

func poolKey(name string) model.ResourceKey {
	return model.ResourceKey{Kind: model.KindIPPool, Name: name}
}

func endpointKey(namespace, name string) model.ResourceKey {
	return model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: namespace, Name: name}
}

// newBlock returns a block whose sequence number no float can hold.
func newBlock(cidr string) *model.Block {
	block := &model.Block{CIDR: netip.MustParsePrefix(cidr), Affinity: "host:" + host, SequenceNumber: 1772600767890123457}
	for ordinal := range block.Size() {
		block.Allocations = append(block.Allocations, model.Free)
		block.Unallocated = append(block.Unallocated, ordinal)
	}
	return block
}

// allocated returns a copy in which handle holds the first free address.
func allocated(block *model.Block, handle string) *model.Block {
	out := block.Clone()
	ordinal := out.Unallocated[0]
	out.Unallocated = out.Unallocated[1:]
	out.Allocations[ordinal] = len(out.Attributes)
	out.Attributes = append(out.Attributes, model.Attribute{HandleID: handle, Owner: map[string]string{"node": host}})
	out.SequenceForAllocation = map[int]uint64{ordinal: out.SequenceNumber}
	out.SequenceNumber++
	return out
}

func confirmed() *model.Affinity { return &model.Affinity{State: model.StateConfirmed} }

func handleOf(cidr string, count int) *model.Handle {
	return &model.Handle{Blocks: map[netip.Prefix]int{netip.MustParsePrefix(cidr): count}}
}

func newPool(name, cidr string) *model.IPPool {
	pool := &model.IPPool{Metadata: model.Metadata{Name: name}, RawCIDR: cidr, NATOutgoing: true}
	pool.ApplyDefaults()
	return pool
}

func newEndpoint(namespace, name string) *model.WorkloadEndpoint {
	return &model.WorkloadEndpoint{
		Metadata: model.Metadata{Name: name, Namespace: namespace},
		Spec:     model.WorkloadEndpointSpec{Node: host, IPNetworks: []string{"10.77.3.64/32"}},
	}
}

// create stores an object and returns its revision.
func (f *fixture) create(key model.Key, value any) datastore.Revision {
	f.Helper()
	return f.put(key, value, datastore.Absent)
}

func (f *fixture) put(key model.Key, value any, revision datastore.Revision) datastore.Revision {
	f.Helper()
	written := f.write(datastore.Step{datastore.Put(key, value, revision)})
	if written[key] == datastore.Absent || len(written) != 1 {
		f.Fatalf("writing the %s gave the revisions %v", key, written)
	}
	return written[key]
}

// get returns the object's value, nil if there is none, and revision.
func (f *fixture) get(key model.Key) (any, datastore.Revision) {
	f.Helper()
	answer := f.read(datastore.Get{Key: key})[0]
	if len(answer.Entries) == 0 {
		return nil, datastore.Absent
	}
	if answer.Entries[0].Key != key || len(answer.Entries) != 1 {
		f.Fatalf("Get of the %s found %v", key, answer.Entries)
	}
	return answer.Entries[0].Value, answer.Entries[0].Revision
}

func (f *fixture) absent(keys ...model.Key) {
	f.Helper()
	for _, key := range keys {
		if value, _ := f.get(key); value != nil {
			f.Errorf("the %s exists: %+v", key, value)
		}
	}
}

// at demands the object's revision.
func (f *fixture) at(key model.Key, want datastore.Revision) {
	f.Helper()
	if _, revision := f.get(key); revision != want {
		f.Errorf("the %s has revision %q, want %q", key, revision, want)
	}
}

// keys lists the answer's keys, by path.
func keys(answer datastore.Answer) []string {
	paths := make([]string, len(answer.Entries))
	for i, entry := range answer.Entries {
		paths[i] = entry.Key.Path()
	}
	return paths
}

// lists demands what a query finds, in this order.
func (f *fixture) lists(query datastore.Query, want ...model.Key) {
	f.Helper()
	paths := []string{}
	for _, key := range want {
		paths = append(paths, key.Path())
	}
	if found := keys(f.read(query)[0]); !slices.Equal(found, paths) {
		f.Errorf("%s: found %q, want %q", query, found, paths)
	}
}

// fails demands that a write fails so, at this key.
func (f *fixture) fails(kind error, key model.Key, steps ...datastore.Step) *datastore.ConflictError {
	f.Helper()
	_, err := f.store.Write(f.ctx, steps...)
	var conflict *datastore.ConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, kind) {
		f.Fatalf("Write failed with %v, want a conflict: %s %v", err, key, kind)
	}
	if conflict.Key != key {
		f.Errorf("the failure names the %s, want the %s", conflict.Key, key)
	}
	if text := fmt.Sprintf("%s %v", key, kind); err.Error() != text {
		f.Errorf("the failure says %q, want %q", err, text)
	}
	return conflict
}
