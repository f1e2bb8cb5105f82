package etcd

import (
	"maps"
	"runtime"
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
