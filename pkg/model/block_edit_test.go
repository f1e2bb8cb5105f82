package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

var editTime = time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.UTC)

func holderNamed(id string) Attribute {
	return Attribute{HandleID: id, Owner: map[string]string{"node": "worker-b"}}
}

func newTestBlock(cidr string, reserve *Reservation) *Block {
	return NewBlock(netip.MustParsePrefix(cidr), "host:worker-b", editTime, reserve)
}

func windowsReserve() *Reservation {
	return &Reservation{Start: 3, End: 1, HandleID: ReserveHandleID, Note: "windows host rsvd"}
}

// handles names the attributes, for comparison with the contract's example.
func handles(b *Block) []string {
	names := []string{}
	for _, attribute := range b.Attributes {
		name := attribute.HandleID
		if !attribute.ReleasedAt.IsZero() {
			name = "releasedAt"
		}
		names = append(names, name)
	}
	return names
}

type blockState struct {
	allocations []int
	unallocated []int
	attributes  []string
	sequence    uint64 // beyond the first
	entries     map[int]uint64
}

func checkState(t *testing.T, step string, b *Block, first uint64, want blockState) {
	t.Helper()
	entries := map[int]uint64{}
	for ordinal, sequence := range b.SequenceForAllocation {
		entries[ordinal] = sequence - first
	}
	got := blockState{b.Allocations, b.Unallocated, handles(b), b.SequenceNumber - first, entries}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", step, got, want)
	}
}

// TestBlockLife is the example of IPAM contract 2.4.
func TestBlockLife(t *testing.T) {
	t.Parallel()
	const n = Free
	b := newTestBlock("10.77.0.0/30", nil)
	first := b.SequenceNumber
	checkState(t, "created", b, first, blockState{[]int{n, n, n, n}, []int{0, 1, 2, 3}, []string{}, 0, map[int]uint64{}})
	b.Allocate(1, holderNamed("a"), nil)
	b.Stamp()
	checkState(t, "allocate for a", b, first, blockState{[]int{0, n, n, n}, []int{1, 2, 3}, []string{"a"}, 1, map[int]uint64{0: 0}})
	b.Allocate(1, holderNamed("b"), nil)
	b.Stamp()
	checkState(t, "allocate for b", b, first, blockState{[]int{0, 1, n, n}, []int{2, 3}, []string{"a", "b"}, 2, map[int]uint64{0: 0, 1: 1}})

	cooling := b.Clone()
	cooling.Release(cooling.Held("a"), editTime, 30*time.Second)
	cooling.Stamp()
	checkState(t, "release a, cooldown 30", cooling, first, blockState{[]int{1, 0, n, n}, []int{2, 3}, []string{"b", "releasedAt"}, 3, map[int]uint64{0: 0, 1: 1}})

	b.Release(b.Held("a"), editTime, 0)
	b.Stamp()
	checkState(t, "release a", b, first, blockState{[]int{n, 0, n, n}, []int{2, 3, 0}, []string{"b"}, 3, map[int]uint64{1: 1}})
	b.Allocate(1, holderNamed("c"), nil)
	b.Stamp()
	checkState(t, "allocate for c", b, first, blockState{[]int{n, 0, 1, n}, []int{3, 0}, []string{"b", "c"}, 4, map[int]uint64{1: 1, 2: 3}})
}

// TestWindowsBlock is the example of IPAM contract 2.1.
func TestWindowsBlock(t *testing.T) {
	t.Parallel()
	body, err := json.Marshal(newTestBlock("10.77.0.0/29", windowsReserve()))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"allocations":[0,0,0,null,null,null,null,0]`, `"unallocated":[3,4,5,6]`,
		`"attributes":[{"handle_id":"windows-reserved-ipam-handle","secondary":{"note":"windows host rsvd"}}]`,
		`"sequenceNumberForAllocation":{}`, `"affinity_claim_time":"2026-03-04T05:06:07Z"`,
		fmt.Sprintf(`"sequenceNumber":%d`, editTime.UnixNano()),
	} {
		if !strings.Contains(string(body), part) {
			t.Errorf("%s lacks %s", body, part)
		}
	}
}

func TestCollect(t *testing.T) {
	t.Parallel()
	released := editTime.Truncate(time.Second)
	tests := []struct {
		name     string
		now      time.Time
		cooldown time.Duration
		freed    bool
	}{
		{"no cooldown, the very second", released, 0, true},
		{"no cooldown, a clock behind", released.Add(-time.Second), 0, false},
		{"negative cooldown, a clock behind", released.Add(-time.Hour), -1, true},
		{"just before", released.Add(29 * time.Second), 30 * time.Second, false},
		{"exactly then", released.Add(30 * time.Second), 30 * time.Second, false},
		{"after", released.Add(31 * time.Second), 30 * time.Second, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newTestBlock("10.77.0.0/30", nil)
			b.Allocate(2, holderNamed("a"), nil)
			b.Release([]int{1}, released, time.Hour)
			b.Collect(test.now, test.cooldown)
			if freed := b.Allocations[1] == Free; freed != test.freed {
				t.Fatalf("freed %v, want %v", freed, test.freed)
			}
			if _, kept := b.SequenceForAllocation[1]; kept == test.freed {
				t.Errorf("sequence entry kept: %v", kept)
			}
			if want := []int{2, 3, 1}; test.freed && !reflect.DeepEqual(b.Unallocated, want) {
				t.Errorf("queue %v, want %v", b.Unallocated, want)
			}
		})
	}
}

func TestCollectKeepsOldEntries(t *testing.T) {
	t.Parallel()
	// An attribute that old writers left empty is an allocation.
	var b Block
	document := `{"cidr":"10.77.0.0/31","affinity":null,"allocations":[1,null],"unallocated":[1],
		"attributes":[{"handle_id":"gone"},{}],"sequenceNumber":7,"future":{"a":1}}`
	if err := json.Unmarshal([]byte(document), &b); err != nil {
		t.Fatal(err)
	}
	b.Collect(editTime, 0)
	if len(b.Attributes) != 1 || b.Allocations[0] != 0 || b.Empty() {
		t.Errorf("attributes %v, allocations %v, empty %v", b.Attributes, b.Allocations, b.Empty())
	}
	b.Allocate(1, holderNamed("a"), nil)
	if body, _ := json.Marshal(&b); !strings.Contains(string(body), `"future":{"a":1}`) || !strings.Contains(string(body), `{"1":7}`) {
		t.Errorf("an unknown member or the sequence entry is lost: %s", body)
	}
}

func TestAllocate(t *testing.T) {
	t.Parallel()
	reserved := func(addr netip.Addr) bool { return addr == netip.MustParseAddr("10.77.0.1") }
	b := newTestBlock("10.77.0.0/30", nil)
	if got := b.Available(reserved); got != 3 {
		t.Errorf("%d available, want 3", got)
	}
	got := b.Allocate(4, holderNamed("a"), reserved)
	if len(got) != 3 || got[1] != netip.MustParseAddr("10.77.0.2") {
		t.Errorf("allocated %v", got)
	}
	if !reflect.DeepEqual(b.Unallocated, []int{1}) || len(b.Attributes) != 1 {
		t.Errorf("queue %v, attributes %v", b.Unallocated, b.Attributes)
	}
	if err := b.AllocateAddress(netip.MustParseAddr("10.77.0.1"), holderNamed("a")); err != nil || len(b.Attributes) != 1 {
		t.Errorf("a reserved address that was asked for: %v, attributes %v", err, b.Attributes)
	}
	if !b.HeldBy(netip.MustParseAddr("10.77.0.1"), holderNamed("a")) || b.HeldBy(netip.MustParseAddr("10.77.0.1"), holderNamed("b")) {
		t.Error("HeldBy")
	}
}

func TestAllocateAddressRefuses(t *testing.T) {
	t.Parallel()
	b := newTestBlock("10.77.0.0/29", windowsReserve())
	b.Allocate(1, holderNamed("a"), nil)
	b.Release(b.Held("a"), editTime, time.Minute)
	b.Allocate(1, holderNamed("b"), nil)
	tests := map[string]BlockError{
		"10.77.0.1": ErrAddressTaken, // the Windows reservation
		"10.77.0.3": ErrAddressTaken, // cools down
		"10.77.0.4": ErrAddressTaken, // taken
		"10.77.0.8": ErrOutsideBlock,
		"fd00::1":   ErrOutsideBlock,
	}
	for addr, want := range tests {
		if err := b.AllocateAddress(netip.MustParseAddr(addr), holderNamed("c")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", addr, err, want)
		}
	}
}

func TestCheckOwner(t *testing.T) {
	t.Parallel()
	b := newTestBlock("10.77.0.0/30", nil)
	if err := b.CheckOwner("host:worker-b"); err != nil {
		t.Error(err)
	}
	if err := b.CheckOwner("host:worker-a"); err == nil || !strings.Contains(err.Error(), "Block host affinity does not match") {
		t.Error(err)
	}
	b.Disown()
	if err := b.CheckOwner("host:worker-a"); err == nil || err.Error() != "Attempt to assign from block 10.77.0.0/30 with no affinity" {
		t.Error(err)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	b := newTestBlock("10.77.0.0/29", windowsReserve())
	b.Attributes[0].HandleID = "Windows-Reserved-IPAM-Handle"
	if !b.Empty() {
		t.Error("a block with only the reservation, in an old writer's case, is empty")
	}
	b.Allocate(1, holderNamed("a"), nil)
	b.Release(b.Held("a"), editTime, time.Minute)
	if b.Empty() {
		t.Error("a block with an address that cools down is not empty")
	}
}

func TestHeldIgnoresJunk(t *testing.T) {
	t.Parallel()
	b := newTestBlock("10.77.0.0/30", nil)
	b.Allocate(1, holderNamed("net.a\r, more"), nil)
	b.Allocate(1, holderNamed("net.ab"), nil)
	if got := b.Held("net.a"); !reflect.DeepEqual(got, []int{0}) {
		t.Errorf("held %v, want [0]", got)
	}
}

func TestAddressesOfBlock(t *testing.T) {
	t.Parallel()
	tests := []struct {
		block, addr string
		ordinal     int
	}{
		{"10.77.3.64/26", "10.77.3.64", 0},
		{"10.77.3.64/26", "10.77.3.127", 63},
		{"10.77.16.0/20", "10.77.31.255", 4095},
		{"fd00:77:1::40/122", "fd00:77:1::7f", 63},
		{"fd00::f000/116", "fd00::ffff", 4095},
		{"10.77.3.1/32", "10.77.3.1", 0},
		{"fd00::1/128", "fd00::1", 0},
	}
	for _, test := range tests {
		b := newTestBlock(test.block, nil)
		addr := netip.MustParseAddr(test.addr)
		if got := b.Addr(test.ordinal); got != addr {
			t.Errorf("%s: ordinal %d is %s, want %s", test.block, test.ordinal, got, addr)
		}
		if got, ok := b.Ordinal(addr); !ok || got != test.ordinal {
			t.Errorf("%s: %s has ordinal %d, want %d", test.block, addr, got, test.ordinal)
		}
	}
}

// FuzzBlockEdits: whatever block can be read, can be edited and read again.
func FuzzBlockEdits(f *testing.F) {
	f.Add(`{"cidr":"10.77.0.0/31","affinity":null,"allocations":[1,null],"unallocated":[1],"attributes":[{"handle_id":"a"},{}],"sequenceNumber":7}`)
	f.Add(`{"cidr":"fd00::/127","allocations":[0,0],"unallocated":null,"attributes":[{"releasedAt":"2026-03-04T05:06:07Z"}],"sequenceNumberForAllocation":{"9":1,"x":2}}`)
	f.Add(`{"cidr":"10.77.0.0/32","allocations":[null]}`)
	f.Fuzz(func(t *testing.T, document string) {
		var b Block
		if json.Unmarshal([]byte(document), &b) != nil {
			return
		}
		b.Collect(editTime, time.Second)
		taken := b.Allocate(2, holderNamed("fuzz"), nil)
		if held := b.Held("fuzz"); len(held) < len(taken) {
			t.Fatalf("took %v, holds %v", taken, held)
		}
		b.StampReleased(b.Held("fuzz"))
		b.Release(b.Held("fuzz"), editTime, 0)
		b.Stamp()
		body, err := json.Marshal(&b)
		if err != nil {
			t.Fatal(err)
		}
		var again Block
		if err := json.Unmarshal(body, &again); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		for _, index := range again.Allocations {
			if index != Free && again.Attributes[index].HandleID == "fuzz" {
				t.Fatalf("%s still holds a released address", body)
			}
		}
	})
}
