//go:build kubernetes && linux

package kubernetes

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
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

// crowd adds other hosts' blocks and affinities, nodes and pools, away from
// where worker-b looks first.
func (e *env) crowd(count int) {
	e.Helper()
	var step datastore.Step
	for i := range count {
		host := fmt.Sprint("node-", i)
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
