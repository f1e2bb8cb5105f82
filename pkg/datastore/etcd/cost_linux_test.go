package etcd

import (
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// TestBudget counts what the server answers: every call is one RPC.
func TestBudget(t *testing.T) {
	shared.Wipe(t)
	store := openStore(t, Options{Endpoints: []string{shared.Endpoint}})
	write := func(wantErr bool, steps ...datastore.Step) func() {
		return func() {
			if _, err := store.Write(within(t, time.Minute), steps...); (err != nil) != wantErr {
				t.Errorf("Write: %v", err)
			}
		}
	}
	read := func(count int) func() {
		queries := make([]datastore.Query, count)
		for i := range queries {
			queries[i] = datastore.ListBlocks{Family: model.IPv4, KeysOnly: true, Limit: i + 1}
		}
		return func() {
			if _, err := store.Read(within(t, time.Minute), queries...); err != nil {
				t.Error(err)
			}
		}
	}
	for _, row := range []struct {
		name string
		do   func()
		want map[string]int
	}{
		{"read one", read(1), map[string]int{"Txn": 1}},
		{"read 128", read(128), map[string]int{"Txn": 1}},
		{"read 129", read(129), map[string]int{"Txn": 2}},
		{"read nothing", read(0), map[string]int{}},
		{"write", write(false, putHandle), map[string]int{"Txn": 1}},
		{"lost race", write(true, putHandle), map[string]int{"Txn": 1}},
		{"write nothing", write(false), map[string]int{}},
	} {
		if calls := shared.CallsDuring(t, row.do); !maps.Equal(calls, row.want) {
			t.Errorf("%s: %v, want %v", row.name, calls, row.want)
		}
	}
}

// TestPages: the keys of a whole family come a thousand at a time, as of one
// revision.
func TestPages(t *testing.T) {
	shared.Wipe(t)
	store := openStore(t, Options{Endpoints: []string{shared.Endpoint}})
	const blocks = 2*pageKeys + 5
	var keys []model.BlockKey
	for first := 0; first < blocks; first += maxOperations {
		var step datastore.Step
		for i := first; i < min(first+maxOperations, blocks); i++ {
			cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 32)
			keys = append(keys, model.BlockKey{CIDR: cidr})
			step = append(step, datastore.Put(keys[i], model.NewBlock(cidr, "host:worker-b", time.Unix(1, 0), nil), datastore.Absent))
		}
		if _, err := store.Write(within(t, time.Minute), step); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(keys, func(a, b model.BlockKey) int { return strings.Compare(a.Path(), b.Path()) })
	list := datastore.ListBlocks{Family: model.IPv4, KeysOnly: true}
	calls := shared.CallsDuring(t, func() {
		answers, err := store.Read(within(t, time.Minute), getHandle, list)
		if err != nil {
			t.Fatal(err)
		}
		found := answers[1].Entries
		if len(found) != blocks || answers[1].More {
			t.Fatalf("%d of %d keys, more: %v", len(found), blocks, answers[1].More)
		}
		for i, entry := range found {
			if entry.Key != keys[i] || entry.Revision == datastore.Absent {
				t.Fatalf("key %d is %+v, want %s", i, entry, keys[i])
			}
		}
	})
	if calls["Txn"] != 3 {
		t.Errorf("%v, want 3 transactions", calls)
	}
}

// TestTooLarge: what a server refuses for its size was certainly not written.
func TestTooLarge(t *testing.T) {
	shared.Wipe(t)
	store := openStore(t, Options{Endpoints: []string{shared.Endpoint}})
	for size, text := range map[int]string{7 << 18: "request is too large", 2 << 20: "message larger than max"} {
		huge := &model.Profile{Metadata: model.Metadata{Name: "huge", Annotations: map[string]string{"a": strings.Repeat("x", size)}}}
		step := append(slices.Clone(putHandle), datastore.Put(model.ResourceKey{Kind: model.KindProfile, Name: "huge"}, huge, datastore.Absent))
		_, err := store.Write(within(t, time.Minute), step)
		demand(t, err, datastore.Unreachable, text)
	}
	answers, err := store.Read(within(t, time.Minute), getHandle)
	if err != nil || len(answers[0].Entries) != 0 {
		t.Errorf("%v, %v", answers, err)
	}
}

// TestCloseLeavesNothing counts goroutines of the client's packages.
func TestCloseLeavesNothing(t *testing.T) {
	for _, endpoint := range []string{shared.Endpoint, silentAddress(t), refusingAddress(t)} {
		store, err := Open(within(t, time.Minute), Options{Endpoints: []string{endpoint}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = store.Read(within(t, 200*time.Millisecond), getHandle)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		// Close asks them to end; they need a moment.
		for deadline := time.Now().Add(prompt); clientGoroutines() != ""; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("still running: %s", clientGoroutines())
			}
		}
	}
}

func clientGoroutines() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var left []string
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(stack, "google.golang.org/grpc") || strings.Contains(stack, "go.etcd.io/etcd/client") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

func BenchmarkConnectAndBatch(b *testing.B) {
	queries := []datastore.Query{
		datastore.Get{Key: model.ResourceKey{Kind: model.KindClusterInformation, Name: model.ClusterInformationName}},
		datastore.ListResources{Kind: model.KindIPPool},
		datastore.ListAffinities{Type: model.AffinityHost, Host: "worker-b", Family: model.IPv4},
		datastore.Get{Key: handleKey},
	}
	for b.Loop() {
		store, err := Open(b.Context(), Options{Endpoints: []string{shared.Endpoint}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := store.Read(b.Context(), queries...); err != nil {
			b.Fatal(err)
		}
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	store, err := Open(b.Context(), Options{Endpoints: []string{shared.Endpoint}})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	for b.Loop() {
		if _, err := store.Read(b.Context(), getHandle); err != nil {
			b.Fatal(err)
		}
	}
}
