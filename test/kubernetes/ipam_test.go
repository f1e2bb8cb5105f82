//go:build kubernetes && linux

package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

// ready makes what addresses are given from: two nodes and a pool.
func (e *env) ready(poolCIDR string) {
	e.Helper()
	for _, node := range []string{"worker-b", "worker-c"} {
		cluster.Admin().Do(e, "POST", "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": node}})
	}
	e.plant("ippools", "IPPool", map[string]any{"name": "pods", "finalizers": []string{"projectcalico.org/ippool-finalizer"}},
		map[string]any{"cidr": poolCIDR})
	e.Cleanup(func() {
		cluster.Admin().Do(e, "PATCH", e.path("ippools", "pods"), map[string]any{"metadata": map[string]any{"finalizers": nil}})
	})
}

// strict makes the server refuse what the schema does not know, instead of
// dropping it.
func strict(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		query := r.URL.Query()
		query.Set("fieldValidation", "Strict")
		r.URL.RawQuery = query.Encode()
	}
	next.ServeHTTP(w, r)
}

func request(host, container string, count int) ipam.Request {
	return ipam.Request{
		Host: host, HandleID: "k8s-pod-network." + container, Count4: count, Use: model.UseWorkload,
		Attributes: map[string]string{"node": host, "pod": container, "namespace": "shop", "timestamp": ipam.FormatTimestamp(time.Now())},
	}
}

func allocator(store datastore.Store) *ipam.Allocator { return ipam.New(store, ipam.Options{}) }

// assign must get as many addresses as it asks for.
func assign(ctx context.Context, store datastore.Store, host, container string, count int) ([]netip.Prefix, error) {
	result, err := allocator(store).Assign(ctx, request(host, container, count))
	if err == nil && len(result.IPv4.Addresses) != count {
		err = fmt.Errorf("%d addresses for %s: %s", len(result.IPv4.Addresses), container, result.IPv4.Short)
	}
	return result.IPv4.Addresses, err
}

func (e *env) assign(store datastore.Store, host, container string, count int) []netip.Prefix {
	e.Helper()
	addresses, err := assign(e.within(time.Minute), store, host, container, count)
	if err != nil {
		e.Fatal(err)
	}
	return addresses
}

func (e *env) release(store datastore.Store, container string) {
	e.Helper()
	if err := allocator(store).ReleaseByHandle(e.within(time.Minute), "k8s-pod-network."+container); err != nil {
		e.Fatal(err)
	}
}

// consistent demands that handles count exactly what blocks hold, that every
// confirmed affinity has its block, and how many addresses are held in all.
func (e *env) consistent(want int) {
	e.Helper()
	answers, err := e.open().Read(e.within(time.Minute), datastore.ListBlocks{Family: model.IPv4}, datastore.ListHandles{},
		datastore.ListAffinities{Type: model.AffinityHost, Family: model.IPv4})
	if err != nil {
		e.Fatal(err)
	}
	held, counted, owners := map[string]int{}, map[string]int{}, map[netip.Prefix]string{}
	total := 0
	for _, entry := range answers[0].Entries {
		block := entry.Value.(*model.Block)
		owners[block.CIDR] = block.Affinity
		for ordinal := range block.Allocations {
			if holder := block.HolderOf(ordinal); holder != nil {
				held[holder.HandleID+" in "+block.CIDR.String()]++
				total++
			}
		}
	}
	for _, entry := range answers[1].Entries {
		for cidr, count := range entry.Value.(*model.Handle).Blocks {
			counted[entry.Key.(model.HandleKey).ID+" in "+cidr.String()] = count
		}
	}
	if fmt.Sprint(held) != fmt.Sprint(counted) || total != want {
		e.Errorf("blocks hold %d addresses, want %d: %v; handles count %v", total, want, held, counted)
	}
	for _, entry := range answers[2].Entries {
		key := entry.Key.(model.AffinityKey)
		if entry.Value.(*model.Affinity).State == model.StateConfirmed && owners[key.CIDR] != key.Owner() {
			e.Errorf("the %s is confirmed, but the block belongs to %q", key, owners[key.CIDR])
		}
	}
}

// TestAddresses is ADD and DEL as IPAM sees them, with every write checked
// strictly against the schema.
func TestAddresses(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		e.ready("10.77.0.0/16")
		e.proxy.Hook(strict)
		store := e.open()
		first := e.assign(store, "worker-b", "one", 1)[0]
		if first.String() != "10.77.194.0/26" {
			t.Errorf("the first address is %s", first)
		}
		second := e.assign(store, "worker-b", "two", 1)[0]
		other := e.assign(store, "worker-c", "three", 1)[0]
		if second.Addr() != first.Addr().Next() || other.Masked() == first.Masked() {
			t.Errorf("addresses %s, %s and %s", first, second, other)
		}
		e.consistent(3)
		for _, container := range []string{"one", "two", "three"} {
			e.release(store, container)
			if err := allocator(store).ReleaseByHandle(e.within(time.Minute), "k8s-pod-network."+container); err != nil && !strings.Contains(err.Error(), "does not exist") {
				t.Errorf("releasing %s again: %v", container, err)
			}
		}
		e.consistent(0)
		if err := allocator(store).RemoveHost(e.within(time.Minute), "worker-b"); err != nil {
			t.Error(err)
		}
		if e.object(e.path("ipamblocks", "10-77-194-0-26")) != nil || e.object(e.path("blockaffinities", "worker-b-10-77-194-0-26")) != nil {
			t.Error("a removed host leaves its block or affinity")
		}
	})
}

// TestDualStack: one request for both families.
func TestDualStack(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		e.ready("10.77.0.0/16")
		e.plant("ippools", "IPPool", map[string]any{"name": "pods-v6"}, map[string]any{"cidr": "fd00:77:1::/112"})
		store, both := e.open(), request("worker-c", "one", 1)
		both.Count6 = 1
		result, err := allocator(store).Assign(e.within(time.Minute), both)
		if err != nil || len(result.IPv4.Addresses) != 1 || len(result.IPv6.Addresses) != 1 || result.IPv6.Addresses[0].String() != "fd00:77:1::8240/122" {
			t.Errorf("%+v, %v", result, err)
		}
		e.release(store, "one")
		e.consistent(0)
	})
}

// TestRacingHosts: two hosts with stores of their own, and many writers on
// each, in a pool of four blocks.
func TestRacingHosts(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		e.ready("10.77.0.0/24")
		e.race(e.open(), e.open(), 8)
		e.consistent(16)
	})
}

// race lets each host give addresses to so many containers at once, and
// demands that no address is given twice.
func (e *env) race(b, c datastore.Store, each int) {
	e.Helper()
	var mu sync.Mutex
	given := map[netip.Prefix]string{}
	var all sync.WaitGroup
	for host, store := range map[string]datastore.Store{"worker-b": b, "worker-c": c} {
		for i := range each {
			all.Go(func() {
				container := fmt.Sprintf("%s-%d", host, i)
				addresses, err := assign(e.within(time.Minute), store, host, container, 1)
				if err != nil {
					e.Errorf("%s: %v", container, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if other, taken := given[addresses[0]]; taken {
					e.Errorf("%s was given to %s and to %s", addresses[0], other, container)
				}
				given[addresses[0]] = container
			})
		}
	}
	all.Wait()
}

// TestRemainsInTheWay: another writer began to delete the block, affinity and
// handle that an ADD is about to make.
func TestRemainsInTheWay(t *testing.T) {
	t.Run("IPAM/21 what is flagged as deleted is removed", func(t *testing.T) { groups(t, remainsInTheWay) })
}

func remainsInTheWay(t *testing.T, e *env) {
	e.ready("10.77.0.0/16")
	affinity := affinityKey("worker-b", "10.77.194.0/26")
	free, unallocated := make([]any, 64), make([]int, 64)
	for i := range unallocated {
		unallocated[i] = i
	}
	e.plant("ipamblocks", "IPAMBlock", map[string]any{"name": "10-77-194-0-26"}, map[string]any{
		"cidr": "10.77.194.0/26", "affinity": "host:worker-c", "allocations": free, "unallocated": unallocated,
		"attributes": []any{}, "strictAffinity": false, "deleted": true,
	})
	e.plant("blockaffinities", "BlockAffinity", map[string]any{"name": affinity.ObjectName(), "labels": affinity.Labels()},
		map[string]any{"state": "pendingDeletion", "node": "worker-b", "type": "host", "cidr": "10.77.194.0/26", "deleted": e.flag(true)})
	e.plant("ipamhandles", "IPAMHandle", map[string]any{"name": "k8s-pod-network.one"},
		map[string]any{"handleID": "k8s-pod-network.one", "block": map[string]any{}, "deleted": true})
	if address := e.assign(e.open(), "worker-b", "one", 1)[0]; address.String() != "10.77.194.0/26" {
		t.Errorf("the address is %s", address)
	}
	e.consistent(1)
}

// TestUpperCaseHandle: names of objects are lower case, container ids need not be.
func TestUpperCaseHandle(t *testing.T) {
	t.Run("IPAM/52 handle with upper case", func(t *testing.T) {
		groups(t, func(t *testing.T, e *env) {
			e.ready("10.77.0.0/16")
			store := e.open()
			e.assign(store, "worker-b", "ONE", 1)
			spec := e.object(e.path("ipamhandles", "k8s-pod-network.one"))["spec"].(map[string]any)
			if spec["handleID"] != "k8s-pod-network.ONE" {
				t.Errorf("the handle's id is %v", spec["handleID"])
			}
			e.consistent(1)
			e.release(store, "ONE")
			e.consistent(0)
		})
	})
}

// TestRacingReleases: all containers of a host go at once.
func TestRacingReleases(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.ready("10.77.0.0/24")
	store := e.open()
	for i := range 8 {
		e.assign(store, "worker-b", fmt.Sprint("c", i), 1)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := allocator(store).ReleaseByHandle(e.within(time.Minute), fmt.Sprint("k8s-pod-network.c", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	e.consistent(0)
}
