package contracttest

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func readTests() []test {
	return []test{
		{"Get/absent", func(f *fixture) {
			for _, key := range oneOfEach() {
				f.absent(key)
			}
		}},
		{"Get/every kind", getEveryKind},
		{"Read/nothing", func(f *fixture) { f.read() }},
		{"Read/answers in the order of the queries", answersInOrder},
		{"Read/more queries than a server takes at once", manyQueries},
		{"Create/a resource gets an identity", createIdentifies},
		{"Prefetch/each answer once", prefetchOnce},
	}
}

func oneOfEach() []model.Key {
	return []model.Key{
		blockKey("10.77.3.64/26"), affinityKey(host, "10.77.3.64/26"), model.HandleKey{ID: "net.3f9c"},
		model.IPAMConfigKey{}, poolKey("pods"), model.ResourceKey{Kind: model.KindIPReservation, Name: "gw"},
	}
}

func getEveryKind(f *fixture) {
	const cidr = "10.77.3.64/26"
	objects := map[model.Key]any{
		blockKey(cidr):                 allocated(newBlock(cidr), "net.3f9c"),
		affinityKey(host, cidr):        confirmed(),
		model.HandleKey{ID: "net.Ab9"}: handleOf(cidr, 2),
		model.IPAMConfigKey{}:          &model.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true, MaxBlocksPerHost: 4},
		blockKey("fd00:77:1::40/122"):  newBlock("fd00:77:1::40/122"),
		poolKey("pods"):                newPool("pods", "10.77.0.0/16"),
	}
	for key, value := range objects {
		revision := f.create(key, value)
		found, at := f.get(key)
		if at != revision {
			f.Errorf("the %s is at revision %q, but was written as %q", key, at, revision)
		}
		if pool, ok := found.(*model.IPPool); ok { // its identity has its own test
			pool.Metadata = value.(*model.IPPool).Metadata
		}
		if reencode(f, key, found) != reencode(f, key, value) {
			f.Errorf("the %s came back as %s, want %s", key, reencode(f, key, found), reencode(f, key, value))
		}
	}
}

func reencode(f *fixture, key model.Key, value any) string {
	f.Helper()
	body, err := model.Encode(key, value)
	if err != nil {
		f.Fatal(err)
	}
	return string(body)
}

func answersInOrder(f *fixture) {
	f.create(poolKey("b"), newPool("b", "10.78.0.0/16"))
	f.create(poolKey("a"), newPool("a", "10.77.0.0/16"))
	answers := f.read(
		datastore.Get{Key: poolKey("b")}, datastore.Get{Key: poolKey("none")},
		datastore.ListResources{Kind: model.KindIPPool}, datastore.Get{Key: poolKey("b")},
	)
	b, a := poolKey("b").Path(), poolKey("a").Path()
	for i, want := range [][]string{{b}, {}, {a, b}, {b}} {
		if found := keys(answers[i]); !slices.Equal(found, want) {
			f.Errorf("answer %d has %q, want %q", i, found, want)
		}
	}
}

func manyQueries(f *fixture) {
	const count = 300
	handles := make([]datastore.Query, count)
	for i := range handles {
		key := model.HandleKey{ID: fmt.Sprintf("net.%03d", i)}
		handles[i] = datastore.Get{Key: key}
		if i%100 == 99 {
			f.create(key, handleOf("10.77.0.0/26", i))
		}
	}
	for i, answer := range f.read(handles...) {
		if found := len(answer.Entries); found != 0 != (i%100 == 99) {
			f.Errorf("answer %d has %d entries", i, found)
		}
	}
}

func createIdentifies(f *fixture) {
	declared := newPool("pods", "10.77.0.0/16")
	before := time.Now().Add(-time.Hour)
	f.create(poolKey("pods"), declared)
	value, _ := f.get(poolKey("pods"))
	metadata := value.(*model.IPPool).Metadata
	if len(metadata.UID) != 36 || metadata.UID[14] != '4' {
		f.Errorf("the UID is %q, want a random one of version 4", metadata.UID)
	}
	if metadata.Created.Before(before) {
		f.Errorf("the creation time is %v", metadata.Created)
	}
	if !reflect.DeepEqual(declared, newPool("pods", "10.77.0.0/16")) {
		f.Errorf("the caller's value was changed: %+v", declared)
	}
}

func prefetchOnce(f *fixture) {
	key := model.HandleKey{ID: "net.3f9c"}
	get := datastore.Get{Key: key}
	first := f.create(key, handleOf("10.77.0.0/26", 1))
	own := []datastore.Query{datastore.ListHandles{}, get}
	answers, store, err := datastore.Prefetch(f.ctx, f.store, own, []datastore.Query{get})
	if err != nil {
		f.Fatal(err)
	}
	if len(answers) != 2 || len(answers[0].Entries) != 1 || len(answers[1].Entries) != 1 {
		f.Errorf("Prefetch answered %v", answers)
	}
	second := f.put(key, handleOf("10.77.0.0/26", 2), first)
	for i, want := range []datastore.Revision{first, second} {
		answers, err := store.Read(f.ctx, get)
		if err != nil {
			f.Fatal(err)
		}
		if _, revision := datastore.One[model.Handle](answers[0]); revision != want {
			f.Errorf("read %d found revision %q, want %q", i, revision, want)
		}
	}
}
