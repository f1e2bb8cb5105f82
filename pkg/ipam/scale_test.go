package ipam

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// nodesVariable asks for a larger cluster than that of the short form.
const nodesVariable = "SCALE_NODES"

const (
	podsPerNode  = 100
	latency      = time.Millisecond
	workers      = 64
	usedInTheEnd = 95 // percent of the pool's blocks
)

// TestScale fills a pool to 95 % and lets a tenth of the pods come and go, some
// of the plugins be killed and some nodes be lost. Nothing is leaked or given
// twice, and an ADD makes no more calls than in an empty pool.
func TestScale(t *testing.T) {
	t.Parallel()
	nodes := 20
	if text := os.Getenv(nodesVariable); text != "" {
		var err error
		if nodes, err = strconv.Atoi(text); err != nil {
			t.Fatalf("environment variable %s: %v", nodesVariable, err)
		}
	}
	if testing.Short() {
		nodes = min(nodes, 10)
	}
	s := newScale(t, nodes)
	begin := time.Now()
	const stages = 4
	for stage := range stages {
		from := nodes * stage / stages
		to := nodes * (stage + 1) / stages
		s.stage(fmt.Sprintf("nodes %d to %d come", from+1, to), to-from, func(i int) { s.boot(s.nodes[from+i]) })
	}
	s.stage("a tenth of the pods is replaced", nodes, func(i int) { s.churn(s.nodes[i]) })
	s.stage("one node in fifty is lost and replaced", max(1, nodes/50), s.replace)
	s.audit()
	t.Logf("%d nodes, %d pods each, %d blocks in the pool, %v a call, %v in all", nodes, podsPerNode, s.blocks, latency, time.Since(begin).Round(time.Second))
	for _, row := range s.table {
		t.Log(row)
	}
	s.flat()
}

// scale is a large cluster.
type scale struct {
	*cluster
	blocks int
	nodes  []*member
	table  []*tally

	mutex  sync.Mutex
	holder map[netip.Addr]string
	given  map[string]netip.Addr
	now    *tally
}

// member is a node of it.
type member struct {
	name   string
	random *rand.Rand
	pods   []string
	made   int
}

// tally counts the calls of the ADDs of a stage.
type tally struct {
	name        string
	calls       map[int]int
	adds, total int
	killed      int
	most        int
}

func (r *tally) mean() float64 { return float64(r.total) / float64(r.adds) }

// at is the number of calls that so many percent of the ADDs do not exceed.
func (r *tally) at(percent int) int {
	seen := 0
	for calls := 0; calls <= r.most; calls++ {
		if seen += r.calls[calls]; seen*100 >= r.adds*percent {
			return calls
		}
	}
	return r.most
}

func (r *tally) String() string {
	return fmt.Sprintf("%-42s %7d ADDs, %5d killed; calls per ADD: mean %.2f, median %d, p99 %d, most %d",
		r.name, r.adds, r.killed, r.mean(), r.at(50), r.at(99), r.most)
}

// newScale has a pool in which other nodes own as many blocks as make it 95 %
// full when every node has its two.
func newScale(t *testing.T, nodes int) *scale {
	t.Helper()
	s := &scale{cluster: &cluster{T: t, store: memory.New(memory.Options{}), clock: newClock()}, holder: map[netip.Addr]string{}, given: map[string]netip.Addr{}, blocks: 1}
	bits := 26
	for s.blocks*usedInTheEnd < 100*2*nodes {
		s.blocks, bits = 2*s.blocks, bits-1
	}
	cidr := netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), bits)
	s.pool("pods", cidr.String(), 26)
	all := blockRange{cidr, 26}
	random := rand.New(rand.NewPCG(1, 1))
	others := s.blocks*usedInTheEnd/100 - 2*nodes
	for _, index := range random.Perm(s.blocks)[:others] {
		s.plantOther(all.at(newUint128(index)))
	}
	for i := range nodes {
		s.nodes = append(s.nodes, s.join(fmt.Sprintf("node-%04d", i)))
	}
	return s
}

// plantOther is a full block of a node that is not played.
func (s *scale) plantOther(cidr netip.Prefix) {
	block := model.NewBlock(cidr, "host:other", s.clock.Now(), nil)
	block.Allocate(block.Size(), model.Attribute{HandleID: "other", Owner: map[string]string{"node": "other"}}, nil)
	s.put(model.BlockKey{CIDR: cidr}, block)
	s.put(model.AffinityKey{Type: model.AffinityHost, Host: "other", CIDR: cidr}, confirmed())
}

func (s *scale) join(name string) *member {
	s.node(name, nil)
	return &member{name: name, random: rand.New(rand.NewPCG(uint64(len(s.nodes)), 2))}
}

// stage does something to many nodes, 64 at a time.
func (s *scale) stage(name string, count int, do func(i int)) {
	s.now = &tally{name: name, calls: map[int]int{}}
	s.table = append(s.table, s.now)
	var group sync.WaitGroup
	next := make(chan int)
	for range workers {
		group.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	group.Wait()
}

// slowly is the datastore over a network, and counts the calls.
type slowly struct {
	datastore.Store
	calls int
}

func (c *slowly) wait(ctx context.Context) error {
	c.calls++
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *slowly) Read(ctx context.Context, queries ...datastore.Query) ([]datastore.Answer, error) {
	return errOr(c.wait(ctx), func() ([]datastore.Answer, error) { return c.Store.Read(ctx, queries...) })
}

func (c *slowly) Write(ctx context.Context, steps ...datastore.Step) (datastore.Written, error) {
	return errOr(c.wait(ctx), func() (datastore.Written, error) { return c.Store.Write(ctx, steps...) })
}

func errOr[T any](err error, do func() (T, error)) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return do()
}

// boot puts all pods on a node.
func (s *scale) boot(n *member) {
	for range podsPerNode {
		s.addPod(n)
	}
}

// churn replaces a tenth of a node's pods; some of the ADDs and DELs are killed
// and the runtime calls DEL again.
func (s *scale) churn(n *member) {
	for range podsPerNode / 10 {
		at := n.random.IntN(len(n.pods))
		pod := n.pods[at]
		n.pods = append(n.pods[:at], n.pods[at+1:]...)
		s.deletePod(n, pod)
		s.addPod(n)
	}
}

// replace loses a node: the controllers release its pods and its blocks, and a
// new node takes over its pods.
func (s *scale) replace(i int) {
	lost := s.nodes[i*len(s.nodes)/max(1, len(s.nodes)/50)%len(s.nodes)]
	for _, pod := range lost.pods {
		s.releasePod(pod, s.store.Competitor())
	}
	if err := New(s.store.Competitor(), Options{Now: s.clock.Now}).RemoveHost(context.Background(), lost.name); err != nil {
		s.Error(err)
	}
	lost.name, lost.pods = lost.name+"-new", nil
	s.node(lost.name, nil)
	s.boot(lost)
}

// addPod is an ADD; one in fifty is killed, after which the runtime calls DEL
// and makes another pod.
func (s *scale) addPod(n *member) {
	for {
		n.made++
		pod := fmt.Sprintf("%s-%d", n.name, n.made)
		if n.random.IntN(50) == 0 {
			dying := &mortal{Store: &slowly{Store: s.store.Competitor()}, left: n.random.IntN(2)}
			if _, err := s.assignPod(n, pod, dying); err != nil && !errors.Is(err, errKilled) {
				s.Error(err)
			}
			s.mutex.Lock()
			s.now.killed++
			s.mutex.Unlock()
			s.releasePod(pod, s.store.Competitor())
			continue
		}
		store := &slowly{Store: s.store.Competitor()}
		address, err := s.assignPod(n, pod, store)
		if err != nil {
			s.Errorf("ADD %s: %v", pod, err)
			return
		}
		n.pods = append(n.pods, pod)
		s.enter(pod, address, store.calls)
		return
	}
}

func (s *scale) assignPod(n *member, pod string, store datastore.Store) (netip.Addr, error) {
	r := Request{Host: n.name, HandleID: pod, Count4: 1, Use: model.UseWorkload, Attributes: map[string]string{"node": n.name}}
	result, err := New(store, Options{Now: s.clock.Now}).Assign(context.Background(), r)
	if err == nil {
		err = result.Err()
	}
	if err != nil {
		return netip.Addr{}, err
	}
	return result.IPv4.Addresses[0].Addr(), nil
}

// enter books an address that an ADD has returned.
func (s *scale) enter(pod string, address netip.Addr, calls int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if other := s.holder[address]; other != "" {
		s.Errorf("%s was given to %s and to %s", address, other, pod)
	}
	s.holder[address], s.given[pod] = pod, address
	s.now.adds++
	s.now.total += calls
	s.now.calls[calls]++
	s.now.most = max(s.now.most, calls)
}

// deletePod is a DEL; one in fifty is killed and called again.
func (s *scale) deletePod(n *member, pod string) {
	if n.random.IntN(50) == 0 {
		dying := &mortal{Store: s.store.Competitor(), left: n.random.IntN(2)}
		s.forget(pod)
		if err := New(dying, Options{Now: s.clock.Now}).ReleaseByHandle(context.Background(), pod); err != nil && !errors.Is(err, errKilled) {
			s.Error(err)
		}
	}
	s.releasePod(pod, &slowly{Store: s.store.Competitor()})
}

func (s *scale) releasePod(pod string, store datastore.Store) {
	s.forget(pod)
	if err := New(store, Options{Now: s.clock.Now}).ReleaseByHandle(context.Background(), pod); err != nil {
		s.Errorf("DEL %s: %v", pod, err)
	}
}

// forget takes a pod's address out of the book before it is given back.
func (s *scale) forget(pod string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if address, given := s.given[pod]; given {
		delete(s.holder, address)
		delete(s.given, pod)
	}
}

// audit compares the datastore with the book.
func (s *scale) audit() {
	s.Helper()
	found := 0
	for _, path := range s.store.Paths() {
		key, ok := model.ParsePath(path)
		cidr, isBlock := key.(model.BlockKey)
		if !ok || !isBlock {
			continue
		}
		block := s.block(cidr.CIDR.String())
		for ordinal := range block.Allocations {
			holder := block.HolderOf(ordinal)
			if holder == nil || holder.HandleID == "other" {
				continue
			}
			found++
			if pod := s.holder[block.Addr(ordinal)]; pod != holder.HandleID {
				s.Errorf("%s is held by %s, its pod is %q", block.Addr(ordinal), holder.HandleID, pod)
			}
		}
	}
	handles := s.count("/calico/ipam/v2/handle/")
	if want := podsPerNode * len(s.nodes); found != want || len(s.holder) != want || handles != want {
		s.Errorf("%d addresses are held, %d booked, by %d handles; want %d", found, len(s.holder), handles, want)
	}
}

// flat demands that an ADD costs the same all the time.
func (s *scale) flat() {
	s.Helper()
	first := s.table[0]
	for _, row := range s.table[1:] {
		if row.at(50) > first.at(50) || row.mean() > 1.1*first.mean() {
			s.Errorf("an ADD makes more calls than at first: %s", row)
		}
	}
}
