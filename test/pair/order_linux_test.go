package pair

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"calico-cni/test/pair/gate"
)

// TestDeleteOrder stops DEL before it deletes the interface and looks at what
// is gone by then.
func TestDeleteOrder(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("Network/49 "+who.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, who)
			p := s.pod(t, sandboxA)
			r := s.add(t, p, s.c)
			deleting := s.startStopped(t, p.verb(t, "DEL", s.c), func(_ int, c gate.Call) bool { return c.Type() == unix.RTM_DELLINK })
			deleting.await(t)
			if who.kubernetes() {
				s.holds(t, p, r.addresses()...)
			} else {
				s.holds(t, p)
			}
			deleting.proceed()
			deleting.wait(t).succeeds(t)
			s.nothingLeft(t)
		})
	}
}

// TestHungDeletion: a kernel that does not come back from deleting a link. The
// runtime hears of it and repeats DEL.
func TestHungDeletion(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("Linux/37 "+who.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, who)
			p := s.pod(t, sandboxA)
			s.add(t, p, s.c)
			deleting := p.verb(t, "DEL", s.c)
			deleting.decide = func(c gate.Call) unix.Errno {
				if c.Type() == unix.RTM_DELLINK {
					<-c.Ended
				}
				return 0
			}
			begin := time.Now()
			o := s.run(t, deleting)
			o.fails(t, o.failure.Code, "20s", s.linkByAlias(t, p.alias()).Attrs().Name)
			if waited := time.Since(begin); waited < 19*time.Second || waited > 40*time.Second {
				t.Errorf("DEL took %v, want 20 s", waited)
			}
			s.del(t, p, s.c)
			s.nothingLeft(t)
		})
	}
}

// TestFailedWriteOfExistingEndpoint: the second ADD of a container of another
// orchestrator only writes its record.
func TestFailedWriteOfExistingEndpoint(t *testing.T) {
	t.Parallel()
	t.Run("Network/35", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, identities[0])
		p := s.pod(t, sandboxA)
		r := s.add(t, p, s.c)
		again := p.verb(t, "ADD", s.c.with("name", "net2"))
		again.decide = func(c gate.Call) unix.Errno {
			if writing(c) {
				return unix.EIO
			}
			return 0
		}
		if o := s.run(t, again); o.status == 0 {
			t.Errorf("ADD succeeds though its write was refused: %s", o.stdout)
		}
		s.works(t, p, r)
	})
}

// consistent demands what the operator's tools and the garbage collector of a
// cluster rely on: each handle counts exactly what blocks hold for it, every
// attribute is in use, and each block is claimed by its owner.
func (o objects) consistent(t *testing.T) {
	t.Helper()
	o.counted(t)
	for _, b := range o.blocks(t) {
		o.claimed(t, b)
	}
}

func (o objects) blocks(t *testing.T) []block {
	t.Helper()
	var all []block
	for key, value := range o.under("/ipam/v2/assignment/") {
		var b block
		if err := json.Unmarshal([]byte(value), &b); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		all = append(all, b)
	}
	return all
}

// counted is consistent without the claims.
func (o objects) counted(t *testing.T) {
	t.Helper()
	counted := map[string]map[string]int{}
	for key, value := range o.under("/ipam/v2/handle/") {
		var handle struct {
			Blocks map[string]int `json:"block"`
		}
		if err := json.Unmarshal([]byte(value), &handle); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		counted[key[strings.LastIndex(key, "/")+1:]] = handle.Blocks
	}
	held := map[string]map[string]int{}
	for _, b := range o.blocks(t) {
		used := map[int]bool{}
		for _, index := range b.Allocations {
			if index == nil {
				continue
			}
			used[*index] = true
			handle := b.Attributes[*index].Handle
			if held[handle] == nil {
				held[handle] = map[string]int{}
			}
			held[handle][b.CIDR]++
		}
		if len(used) != len(b.Attributes) {
			t.Errorf("block %s has %d attributes, %d in use", b.CIDR, len(b.Attributes), len(used))
		}
	}
	if fmt.Sprint(held) != fmt.Sprint(counted) {
		t.Errorf("blocks hold %v, handles count %v", held, counted)
	}
}

// claimed demands a confirmed affinity of the block's owner.
func (o objects) claimed(t *testing.T, b block) {
	t.Helper()
	kind, owner, _ := strings.Cut(b.Affinity, ":")
	suffix := "/" + strings.Replace(b.CIDR, "/", "-", 1)
	for key, value := range o.under("/ipam/v2/" + kind + "/" + owner + "/") {
		if strings.HasSuffix(key, suffix) && strings.Contains(value, `"confirmed"`) {
			return
		}
	}
	t.Errorf("block %s of %q has no confirmed affinity", b.CIDR, b.Affinity)
}

// TestConsistency looks at the datastore after a long day.
func TestConsistency(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/65 nothing for a check to complain about", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, identities[1])
		s.c = s.c.with("pools", []any{map[string]any{"cidr": "10.78.0.0/28", "blockSize": 30}, pool("fd00:78::/112")}).
			with("ipam.ipv4_pools", []any{"10.78.0.0/28"}).with("ipam.ipv6_pools", []any{"fd00:78::/112"})
		var pods []*pod
		for i := range 16 {
			p := newPod(t, fmt.Sprintf("container-%02d", i), fmt.Sprintf("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-%d", i%5))
			pods = append(pods, p)
			s.add(t, p, s.c)
			if i%3 == 2 {
				s.del(t, pods[i-1], s.c)
				s.add(t, pods[i-1], s.c)
			}
			s.objects(t).consistent(t)
		}
		full := newPod(t, "too-many", "")
		if o := s.run(t, full.verb(t, "ADD", s.c)); o.status == 0 {
			t.Errorf("a 17th address of a pool of 16: %s", o.stdout)
		}
		s.objects(t).consistent(t)
		s.run(t, hostVerb(t, "GC", s.c.gcKey(validKey, attachments(pods[0].container, "eth0")))).succeeds(t)
		s.objects(t).consistent(t)
		if held := s.objects(t).allocated(t); len(held) != 1 {
			t.Errorf("after GC %v are held, want one container", held)
		}
		s.del(t, pods[0], s.c)
		s.nothingLeft(t)
	})
	t.Run("IPAM/65 objects of another product are left alone", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, identities[0])
		foreign := objects{"/calico/v1/other": `{"a":1}`, resourceRoot + "bgppeers/x": `{"kind":"BGPPeer"}`}
		s.put(t, foreign)
		p := s.pod(t, sandboxA)
		s.add(t, p, s.c)
		s.run(t, hostVerb(t, "GC", s.c.gcKey(validKey, nil))).succeeds(t)
		for key, value := range foreign {
			if have := s.objects(t)[key]; have != value {
				t.Errorf("%s is %q, was %q", key, have, value)
			}
		}
		if keys := s.objects(t).under("/ipam/v2/handle/").keys(); !slices.Equal(keys, nil) {
			t.Errorf("handles are left: %v", keys)
		}
	})
}
