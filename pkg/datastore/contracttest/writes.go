package contracttest

import (
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// staleRevision is a revision of an object that was deleted again.
func (f *fixture) staleRevision(key model.Key, value any) datastore.Revision {
	f.Helper()
	revision := f.create(key, value)
	f.write(datastore.Step{datastore.Remove(key, revision)})
	f.absent(key)
	return revision
}

func writeTests() []test {
	const cidr = "10.77.0.0/26"
	key := model.HandleKey{ID: "net.3f9c"}
	value := func(count int) *model.Handle { return handleOf(cidr, count) }
	return []test{
		{"Write/nothing", func(f *fixture) {
			f.write()
			f.write(datastore.Step{})
		}},
		{"Create/exists", func(f *fixture) {
			first := f.create(key, value(1))
			f.fails(datastore.ErrExists, key, datastore.Step{datastore.Put(key, value(2), datastore.Absent)})
			f.at(key, first)
		}},
		{"Update/revision as read", func(f *fixture) {
			first := f.create(key, value(1))
			second := f.put(key, value(2), first)
			if first == second {
				f.Error("an update did not change the revision")
			}
			f.at(key, second)
		}},
		{"Update/conflict", func(f *fixture) {
			first := f.create(key, value(1))
			second := f.put(key, value(2), first)
			f.fails(datastore.ErrConflict, key, datastore.Step{datastore.Put(key, value(3), first)})
			f.at(key, second)
		}},
		{"Update/absent", func(f *fixture) {
			stale := f.staleRevision(key, value(1))
			f.fails(datastore.ErrNotFound, key, datastore.Step{datastore.Put(key, value(2), stale)})
			f.absent(key)
		}},
		{"Update/made anew since it was read", func(f *fixture) {
			stale := f.staleRevision(key, value(1))
			f.create(key, value(1))
			f.fails(datastore.ErrConflict, key, datastore.Step{datastore.Put(key, value(2), stale)})
		}},
		{"Delete/revision as read", func(f *fixture) {
			f.write(datastore.Step{datastore.Remove(key, f.create(key, value(1)))})
			f.absent(key)
		}},
		{"Delete/conflict", func(f *fixture) {
			first := f.create(key, value(1))
			second := f.put(key, value(2), first)
			f.fails(datastore.ErrConflict, key, datastore.Step{datastore.Remove(key, first)})
			f.at(key, second)
		}},
		{"Delete/absent", func(f *fixture) {
			stale := f.staleRevision(key, value(1))
			f.fails(datastore.ErrNotFound, key, datastore.Step{datastore.Remove(key, stale)})
		}},
		{"Delete/any", func(f *fixture) {
			f.create(key, value(1))
			for range 2 { // nothing there is fine too
				f.write(datastore.Step{datastore.Remove(key, datastore.Any)})
				f.absent(key)
			}
		}},
		{"Write/big value", bigValue},
		{"Write/mistakes of the caller", mistakes},
		{"Write/the value stays the caller's", func(f *fixture) {
			handle := value(1)
			f.create(key, handle)
			handle.Blocks = nil
			found, _ := f.get(key)
			if found.(*model.Handle).Blocks == nil {
				f.Error("changing a value after it was written changed the store")
			}
		}},
	}
}

// bigValue is a block of 4096 addresses, all of them held: about as large as
// an object gets.
func bigValue(f *fixture) {
	const cidr = "10.77.0.0/20"
	block := newBlock(cidr)
	for ordinal := range block.Allocations {
		block.Allocations[ordinal] = ordinal
		block.Attributes = append(block.Attributes, model.Attribute{
			HandleID: "net." + strings.Repeat("3f9c", 16), Owner: map[string]string{"node": host, "pod": "web-0"},
		})
	}
	block.Unallocated = nil
	revision := f.create(blockKey(cidr), block)
	found, _ := f.get(blockKey(cidr))
	if reencode(f, blockKey(cidr), found) != reencode(f, blockKey(cidr), block) {
		f.Error("a big block came back changed")
	}
	f.write(datastore.Step{datastore.Remove(blockKey(cidr), revision)})
}

// mistakes are refused before anything is written.
func mistakes(f *fixture) {
	good := model.HandleKey{ID: "net.good"}
	handle := handleOf("10.77.0.0/26", 1)
	for name, wrong := range map[string]datastore.Mutation{
		"update without revision": {Op: datastore.Update, Key: good, Value: handle},
		"delete without revision": {Op: datastore.Delete, Key: good},
		"expectation of anything": datastore.Guard(good, datastore.Any),
		"value of another key":    datastore.Put(blockKey("10.77.0.0/26"), handle, datastore.Absent),
		"no value":                datastore.Put(model.HandleKey{ID: "net.x"}, nil, datastore.Absent),
		"nil value":               datastore.Put(model.HandleKey{ID: "net.x"}, (*model.Handle)(nil), datastore.Absent),
		"slash in a name":         datastore.Put(model.HandleKey{ID: "net/x"}, handle, datastore.Absent),
		"nameless resource":       datastore.Put(poolKey("pods"), newPool("", "10.77.0.0/16"), datastore.Absent),
	} {
		step := datastore.Step{datastore.Put(model.HandleKey{ID: "net.other"}, handle, datastore.Absent), wrong}
		if _, err := f.store.Write(f.ctx, step); err == nil {
			f.Errorf("%s: no error", name)
		}
		f.lists(datastore.ListHandles{})
	}
}
