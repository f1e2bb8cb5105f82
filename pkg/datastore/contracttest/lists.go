package contracttest

import (
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func listTests() []test {
	return []test{
		{"List/empty", func(f *fixture) {
			f.lists(datastore.ListHandles{})
			f.lists(datastore.ListBlocks{Family: model.IPv4})
			f.lists(datastore.ListAffinities{Type: model.AffinityHost, Host: host, Family: model.IPv4})
		}},
		{"List/affinities", listAffinities},
		{"List/blocks", listBlocks},
		{"List/blocks with a limit", listBlocksLimited},
		{"List/block keys", listBlockKeys},
		{"List/handles", func(f *fixture) {
			b, a := model.HandleKey{ID: "net.b"}, model.HandleKey{ID: "net.a"}
			f.create(b, handleOf("10.77.0.0/26", 1))
			f.create(a, handleOf("10.77.0.0/26", 1))
			f.lists(datastore.ListHandles{}, a, b)
		}},
		{"List/pools", func(f *fixture) {
			b, a := poolKey("pods-b"), poolKey("pods")
			f.create(b, newPool("pods-b", "10.78.0.0/16"))
			f.create(a, newPool("pods", "10.77.0.0/16"))
			f.lists(datastore.ListResources{Kind: model.KindIPPool}, a, b)
		}},
		{"List/drops what is flagged as deleted", listsDropFlagged},
	}
}

func listAffinities(f *fixture) {
	mine := []model.Key{affinityKey(host, "10.77.0.0/26"), affinityKey(host, "10.77.0.64/26")}
	longer := affinityKey(host+"2", "10.77.1.0/26") // its host begins with ours
	other := affinityKey("a", "10.77.2.0/26")
	six := affinityKey(host, "fd00:77::/122")
	// Of another block: on Kubernetes the type is no part of an object's name.
	virtual := model.AffinityKey{Type: model.AffinityVirtual, Host: host, CIDR: blockKey("fd00:77::40/122").CIDR}
	for _, key := range append(mine, longer, other, six) {
		f.create(key, confirmed())
	}
	list := datastore.ListAffinities{Type: model.AffinityHost, Host: host, Family: model.IPv4}
	f.lists(list, mine...)
	list.Family = model.IPv6
	f.lists(list, six)
	list.Host = ""
	f.lists(list, six)
	list.Family = model.IPv4
	f.lists(list, other, mine[0], mine[1], longer)
	list.Type = model.AffinityVirtual
	f.lists(list)
	f.create(virtual, confirmed())
	list.Family = model.IPv6
	f.lists(list, virtual)
}

func (f *fixture) createBlocks(cidrs ...string) {
	f.Helper()
	for _, cidr := range cidrs {
		f.create(blockKey(cidr), newBlock(cidr))
	}
}

func listBlocks(f *fixture) {
	f.createBlocks("10.77.1.0/26", "10.77.0.64/26", "10.77.0.128/26", "10.77.10.0/26", "fd00:77::40/122")
	v4 := datastore.ListBlocks{Family: model.IPv4}
	f.lists(v4, blockKey("10.77.0.128/26"), blockKey("10.77.0.64/26"), blockKey("10.77.1.0/26"), blockKey("10.77.10.0/26"))
	v4.TextPrefix = "10.77.1."
	f.lists(v4, blockKey("10.77.1.0/26"))
	v4.TextPrefix = "10.77.1"
	f.lists(v4, blockKey("10.77.1.0/26"), blockKey("10.77.10.0/26"))
	v4.TextPrefix = "10.78."
	f.lists(v4)
	f.lists(datastore.ListBlocks{Family: model.IPv6}, blockKey("fd00:77::40/122"))
	f.lists(datastore.ListBlocks{Family: model.IPv6, TextPrefix: "fd00:77::4"}, blockKey("fd00:77::40/122"))
}

func listBlocksLimited(f *fixture) {
	f.createBlocks("10.77.0.0/26", "10.77.0.64/26", "10.77.1.0/26")
	for _, row := range []struct {
		limit, found int
		more         bool
	}{{0, 3, false}, {1, 1, true}, {2, 2, true}, {3, 3, false}, {4, 3, false}} {
		answer := f.read(datastore.ListBlocks{Family: model.IPv4, Limit: row.limit})[0]
		if len(answer.Entries) != row.found || answer.More != row.more {
			f.Errorf("limit %d: %d found, more %v; want %d, %v", row.limit, len(answer.Entries), answer.More, row.found, row.more)
		}
	}
	answer := f.read(datastore.ListBlocks{Family: model.IPv4, TextPrefix: "10.77.0.", Limit: 2})[0]
	if answer.More {
		f.Error("a block beyond the text prefix counts as more")
	}
}

func listBlockKeys(f *fixture) {
	f.createBlocks("10.77.0.0/26", "10.77.0.64/26")
	list := datastore.ListBlocks{Family: model.IPv4, KeysOnly: true}
	f.lists(list, blockKey("10.77.0.0/26"), blockKey("10.77.0.64/26"))
	for _, entry := range f.read(list)[0].Entries {
		if entry.Value != nil {
			f.Errorf("the %s came with a value", entry.Key)
		}
	}
}

func listsDropFlagged(f *fixture) {
	kept, flagged := "10.77.0.0/26", newBlock("10.77.0.64/26")
	flagged.Deleted = true
	f.createBlocks(kept)
	f.create(blockKey("10.77.0.64/26"), flagged)
	f.create(affinityKey(host, kept), confirmed())
	f.create(affinityKey(host, "10.77.0.64/26"), &model.Affinity{State: model.StatePendingDeletion, Deleted: true})
	f.create(model.HandleKey{ID: "net.a"}, handleOf(kept, 1))
	f.create(model.HandleKey{ID: "net.b"}, &model.Handle{Deleted: true})
	f.lists(datastore.ListBlocks{Family: model.IPv4}, blockKey(kept))
	f.lists(datastore.ListAffinities{Type: model.AffinityHost, Host: host, Family: model.IPv4}, affinityKey(host, kept))
	f.lists(datastore.ListHandles{}, model.HandleKey{ID: "net.a"})
}
