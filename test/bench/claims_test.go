//go:build linux

package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	etcdstore "calico-cni/pkg/datastore/etcd"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
	"calico-cni/test/etcdtest"
)

// What a claim may take, whatever the cluster holds. An ADD makes one call more,
// for its record.
const (
	claimCalls = 4
	claimBytes = 64 << 10
)

// TestClaimsStayFlat: the first address of a new node costs the same with no
// block and with 5,000 half-full ones of other nodes.
func TestClaimsStayFlat(t *testing.T) {
	t.Parallel()
	server, err := etcdtest.Launch(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	e := etcdOn(server)
	if err := e.data.put(clusterObjects()); err != nil {
		t.Fatal(err)
	}
	for i, blocks := range []int{0, 1000, 5000} {
		if err := e.data.crowd(blocks); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("new-%d", i)
		if err := e.data.nodes(name); err != nil {
			t.Fatal(err)
		}
		calls, bytes := claim(t, e, name)
		if calls > claimCalls || bytes > claimBytes {
			t.Errorf("%d blocks: a claim took %d calls and %d bytes, want at most %d and %d", blocks, calls, bytes, claimCalls, claimBytes)
		}
		t.Logf("%d blocks of other nodes: a claim takes %d calls and %d bytes", blocks, calls, bytes)
	}
}

// claim gives a new node its first address on a connection of its own.
func claim(t *testing.T, e *etcdServer, host string) (calls, bytes int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	callsBefore, bytesBefore, err := e.traffic()
	if err != nil {
		t.Fatal(err)
	}
	var store datastore.Store
	if store, err = etcdstore.Open(ctx, etcdstore.Options{Endpoints: []string{e.server.Endpoint}}); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	got, err := ipam.New(store, ipam.Options{}).Assign(ctx, ipam.Request{
		Host: host, HandleID: network + "." + host, Count4: 1, Use: model.UseWorkload,
		Attributes: map[string]string{"node": host, "timestamp": ipam.FormatTimestamp(time.Now())},
	})
	if err != nil || len(got.IPv4.Addresses) != 1 {
		t.Fatalf("%s got %v: %v", host, got.IPv4.Addresses, err)
	}
	calls, bytes, err = e.traffic()
	if err != nil {
		t.Fatal(err)
	}
	return calls - callsBefore, bytes - bytesBefore
}
