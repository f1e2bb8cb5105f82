package ipam

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// world is what must be true of the addresses: who holds which.
type world struct {
	*cluster
	random *rand.Rand
	held   map[string][]netip.Addr
	holder map[netip.Addr]string
	next   int
}

// TestRandomHistories lets several hosts do random things, with and without
// cooldown, strict affinity and reservations, and compares with a model after
// each.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		t.Run(fmt.Sprint("IPAM/65 random history ", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			for range 120 {
				w.step()
				if t.Failed() {
					t.Fatal(w.store.Dump())
				}
			}
			for name := range w.held {
				w.delete(name)
			}
			w.wantAllFree()
		})
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		cluster: newCluster(t, memory.Options{NonTransactional: seed%2 == 1}),
		random:  rand.New(rand.NewPCG(seed, 1)),
		held:    map[string][]netip.Addr{}, holder: map[netip.Addr]string{},
	}
	w.pool("a", "10.77.0.0/27", 29)
	w.pool("b", "10.77.1.0/28", 32)
	w.pool("c", "fd00::/122", 125)
	w.config(fmt.Sprintf(`{"strict_affinity":%v,"auto_allocate_blocks":true,"ipCooldownSeconds":%d}`, seed%3 == 0, 20*(seed/2%2)))
	if seed%4 < 2 {
		w.reserve("10.77.0.4/30", "10.77.0.16/29")
	}
	return w
}

func (w *world) step() {
	w.Helper()
	w.clock.advance(time.Duration(w.random.IntN(30)) * time.Second)
	host := []string{"worker-a", "worker-b", "worker-c"}[w.random.IntN(3)]
	switch w.random.IntN(10) {
	case 0, 1, 2, 3:
		w.add(host)
	case 4:
		w.addRequested(host)
	case 5, 6, 7:
		if names := slices.Sorted(maps.Keys(w.held)); len(names) > 0 {
			w.delete(names[w.random.IntN(len(names))])
		}
	case 8:
		w.releaseOne()
	case 9:
		if err := w.ipam.ReleaseHostAffinities(w.ctx(), model.AffinityHost, host, true); err != nil && !errors.Is(err, ErrBlockNotEmpty) {
			w.Error(err)
		}
	}
	verifyConsistent(w.T, w.store)
	w.compare()
}

func (w *world) add(host string) {
	w.Helper()
	w.next++
	name := fmt.Sprint("c", w.next)
	r := w.request(host, name, 1+w.random.IntN(3))
	if w.random.IntN(2) == 0 {
		r.Count6 = 1
	}
	result, err := w.ipam.Assign(w.ctx(), r)
	if err != nil && r.Count6 == 0 {
		w.Errorf("ADD %s: %v", name, err)
	}
	for _, cidr := range slices.Concat(result.IPv4.Addresses, result.IPv6.Addresses) {
		if newSpans([]netip.Prefix{netip.MustParsePrefix("10.77.0.4/30"), netip.MustParsePrefix("10.77.0.16/29")}).contains(cidr.Addr()) && w.reservesSomething() {
			w.Errorf("%s is reserved", cidr)
		}
		w.take(name, cidr.Addr())
	}
	if err == nil && r.Count6 > 0 && len(result.IPv4.Addresses) != r.Count4 {
		w.Errorf("dual-stack ADD %s got %v without an error", name, result.IPv4.Addresses)
	}
}

func (w *world) reservesSomething() bool {
	return w.count("/calico/resources/v3/projectcalico.org/ipreservations/") > 0
}

func (w *world) take(name string, addr netip.Addr) {
	w.Helper()
	if other := w.holder[addr]; other != "" {
		w.Errorf("%s was given to %s and to %s", addr, other, name)
	}
	w.holder[addr] = name
	w.held[name] = append(w.held[name], addr)
}

func (w *world) addRequested(host string) {
	w.Helper()
	w.next++
	name := fmt.Sprint("c", w.next)
	addr := netip.AddrFrom4([4]byte{10, 77, 0, byte(w.random.IntN(32))})
	if _, err := w.ipam.AssignAddress(w.ctx(), w.address(host, name, addr.String())); err == nil {
		w.take(name, addr)
	}
}

func (w *world) delete(name string) {
	w.Helper()
	w.release(name)
	for _, addr := range w.held[name] {
		delete(w.holder, addr)
	}
	delete(w.held, name)
}

func (w *world) releaseOne() {
	w.Helper()
	names := slices.Sorted(maps.Keys(w.held))
	if len(names) == 0 {
		return
	}
	name := names[w.random.IntN(len(names))]
	addr := w.held[name][0]
	free, _, err := w.ipam.ReleaseAddresses(w.ctx(), []Release{{Addr: addr, HandleID: "k8s-pod-network." + name}})
	if err != nil || len(free) > 0 {
		w.Errorf("releasing %s of %s: unallocated %v, %v", addr, name, free, err)
	}
	delete(w.holder, addr)
	if w.held[name] = w.held[name][1:]; len(w.held[name]) == 0 {
		delete(w.held, name)
	}
}

// compare checks that the datastore knows exactly the model's holders.
func (w *world) compare() {
	w.Helper()
	found := 0
	for _, path := range w.store.Paths() {
		key, ok := model.ParsePath(path)
		block, isBlock := key.(model.BlockKey)
		if !ok || !isBlock {
			continue
		}
		value := w.block(block.CIDR.String())
		for ordinal := range value.Allocations {
			holder := value.HolderOf(ordinal)
			if holder == nil || !holder.ReleasedAt.IsZero() {
				continue
			}
			found++
			if want := "k8s-pod-network." + w.holder[value.Addr(ordinal)]; holder.HandleID != want {
				w.Errorf("%s is held by %s, want %s", value.Addr(ordinal), holder.HandleID, want)
			}
		}
	}
	if found != len(w.holder) {
		w.Errorf("%d addresses are held, want %d", found, len(w.holder))
	}
}

// wantAllFree checks that nothing is leaked once everything is released.
func (w *world) wantAllFree() {
	w.Helper()
	if got := w.count("/calico/ipam/v2/handle/"); got != 0 {
		w.Errorf("%d handles are left", got)
	}
	w.clock.advance(time.Hour)
	u, err := w.ipam.Usage(w.ctx())
	if err != nil {
		w.Fatal(err)
	}
	for _, pool := range u.Pools {
		if pool.InUse.Sign() != 0 {
			w.Errorf("%s of pool %s are in use", pool.InUse, pool.Name)
		}
	}
}
