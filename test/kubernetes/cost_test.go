//go:build kubernetes && linux

package kubernetes

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// latency makes requests that are sent together overlap for certain.
const latency = 60 * time.Millisecond

// wantCost counts what a verb sends: one after the other, and in all.
func (e *env) wantCost(what string, rounds, all int, do func()) {
	e.Helper()
	e.proxy.Forget()
	do()
	exchanges := e.proxy.Exchanges()
	if got := kubetest.Rounds(exchanges); got != rounds || len(exchanges) != all {
		e.Errorf("%s: %d requests one after the other and %d in all, want %d and %d", what, got, len(exchanges), rounds, all)
		for _, exchange := range exchanges {
			e.Log(exchange)
		}
	}
	e.Logf("%s: %d one after the other, %d in all", what, kubetest.Rounds(exchanges), len(exchanges))
}

// TestCost is IPAM's part of the promise of round trips. The network plugin
// shares the first batch with it and adds one write of the pod.
func TestCost(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		for _, others := range []int{0, 200} {
			t.Run(fmt.Sprint(others, " others"), func(t *testing.T) {
				e := newEnv(t, e.group)
				e.ready("10.77.0.0/16")
				e.crowd(others)
				e.proxy.Latency = latency
				store := e.open()
				// configuration, reservations, node, pools, affinities, handle |
				// 4 candidates | affinity, handle | block | affinity
				e.wantCost("claim", 5, 14, func() { e.assign(store, "worker-b", "one", 1) })
				// the same batch | own block | handle | block
				e.wantCost("ADD", 4, 9, func() { e.assign(store, "worker-b", "two", 1) })
				e.wantCost("DEL", 4, 5, func() { e.release(store, "two") })
				e.assign(store, "worker-b", "fill", 63)
				e.wantCost("claim, own block full", 6, 15, func() { e.assign(store, "worker-b", "three", 1) })
				e.wantCost("STATUS", 1, 1, func() {
					e.get(store, model.ResourceKey{Kind: model.KindClusterInformation, Name: model.ClusterInformationName})
				})
			})
		}
	})
}

// TestPodCost is the promise of round trips, of both plugins in one process. It
// does not grow with the cluster.
func TestPodCost(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		for _, others := range []int{0, 200} {
			t.Run(fmt.Sprint(others, " others"), func(t *testing.T) { newEnv(t, e.group).podCost(others) })
		}
	})
}

func (e *env) podCost(others int) {
	h, p := newCluster(e)
	e.crowd(others)
	if e.group == model.GroupV1 {
		e.unready() // there no pool has a finalizer
	}
	add := func(id string) func() {
		return func() { h.mustRun(p, h.call(invocation.Add, id, h.policy())) }
	}
	// The first ADD after the boot of the host looks for old affinities, and for
	// leftovers in the pool.
	add("first")()
	fill := func(handle string) {
		e.proxy.Latency = 0
		e.assign(e.open(), "worker-b", handle, 63)
		e.proxy.Latency = latency
	}
	e.proxy.Latency = latency
	e.wantCost("ADD", 5, 13, add("c1"))
	e.wantCost("DEL", 5, 9, func() { h.mustRun(p, h.call(invocation.Del, "c1", h.policy())) })
	e.wantCost("STATUS", 1, 1, func() { h.mustRun(p, h.call(invocation.Status, "", h.policy())) })
	fill("full")
	e.wantCost("ADD that claims", 7, 19, add("c2"))
	e.wantCost("ADD with a second block", 5, 14, add("c3"))
	// The first batch is that of the configuration. What a pod does without
	// costs nothing more; what it wants beside has to be read then.
	e.annotate(map[string]any{"ipFamilies": `["IPv4"]`})
	dual := h.policy("ipam", map[string]any{"type": "calico-ipam", "assign_ipv6": "true"})
	e.wantCost("ADD of a pod that wants one family of two", 5, 15, func() { h.mustRun(p, h.call(invocation.Add, "c4", dual)) })
}

// crowd adds other hosts' blocks and affinities, nodes and pools, away from
// where worker-b looks first.
func (e *env) crowd(count int) {
	e.Helper()
	var step datastore.Step
	for i := range count {
		host := fmt.Sprint("node-", i)
		cluster.Admin().Do(e, "POST", "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": host}})
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i / 4), byte(i % 4 * 64)}), 26)
		block := model.NewBlock(cidr, "host:"+host, time.Now(), nil)
		pool := &model.IPPool{Metadata: model.Metadata{Name: fmt.Sprint("z-", i)}, RawCIDR: fmt.Sprintf("10.78.%d.0/24", i)}
		pool.ApplyDefaults()
		step = append(step,
			datastore.Put(model.BlockKey{CIDR: cidr}, block, datastore.Absent),
			datastore.Put(model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: cidr}, &model.Affinity{State: model.StateConfirmed}, datastore.Absent),
			datastore.Put(model.ResourceKey{Kind: model.KindIPPool, Name: pool.Metadata.Name}, pool, datastore.Absent),
		)
	}
	e.write(e.open(), step)
}
