package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// limitRequests makes the datastore refuse writes that a server with default
// settings refuses.
func limitRequests(c *cluster) {
	const most = 3 << 19 // 1.5 MiB
	c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		size := 0
		for _, step := range call.Steps {
			for _, mutation := range step {
				if body, err := model.Encode(mutation.Key, mutation.Value); err == nil {
					size += len(body)
				}
			}
		}
		if size > most {
			return &datastore.UnavailableError{Doing: "writing", Err: fmt.Errorf("request is too large: %d bytes", size)}
		}
		return nil
	}})
}

// largeBlock plants a block of 4096 addresses, all but one in use, each by
// another pod.
func (c *cluster) largeBlock(cidr netip.Prefix) {
	block := model.NewBlock(cidr, "host:worker-b", c.clock.Now(), nil)
	last := block.Size() - 1
	block.Unallocated = []int{last}
	for i := range last {
		block.Allocations[i] = i
		block.SequenceForAllocation[i] = block.SequenceNumber
		block.Attributes = append(block.Attributes, model.Attribute{
			HandleID: fmt.Sprintf("k8s-pod-network.%064d", i),
			Owner: map[string]string{
				"node": "worker-b", "namespace": "shop", "pod": "cart-5d78c9869d-abcde", "timestamp": FormatTimestamp(c.clock.Now()),
			},
		})
	}
	c.put(model.BlockKey{CIDR: cidr}, block)
	c.plantAffinity("worker-b", cidr.String(), `{"state":"confirmed","deleted":false}`)
}

// TestWeight: the estimate is never below what is written, nor far above.
func TestWeight(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	full := netip.MustParsePrefix("10.77.0.0/20")
	c.largeBlock(full)
	empty := model.NewBlock(full, "host:worker-b", c.clock.Now(), nil)
	for _, block := range []*model.Block{empty, c.block(full.String())} {
		body, err := model.Encode(model.BlockKey{CIDR: full}, block)
		if got := weight(block); err != nil || got < len(body) || got > 2*len(body) {
			t.Errorf("%d bytes are estimated to be %d, %v", len(body), got, err)
		}
	}
}

// TestRequestsStaySmall: two large and almost full blocks are each written by
// a request of its own.
func TestRequestsStaySmall(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.pool("four", "10.77.0.0/20", 20)
	c.pool("six", "fd00::/116", 116)
	c.largeBlock(netip.MustParsePrefix("10.77.0.0/20"))
	c.largeBlock(netip.MustParsePrefix("fd00::/116"))
	limitRequests(c)
	r := c.request("worker-b", "one", 1)
	r.Count6 = 1
	result, err := c.ipam.Assign(c.ctx(), r)
	if err == nil {
		err = result.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	if handle := c.handle("one"); len(handle.Blocks) != 2 {
		t.Errorf("handle %+v", handle)
	}
	c.release("one")
	c.wantGone("k8s-pod-network.one")
}

// TestShortAfterLargeBlock: one family is written before the other turns out
// to be full; then it is given back.
func TestShortAfterLargeBlock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, memory.Options{})
	c.pool("four", "10.77.0.0/20", 20)
	c.pool("six", "fd00::/128", 128)
	c.largeBlock(netip.MustParsePrefix("10.77.0.0/20"))
	c.fullBlock("worker-a", netip.MustParsePrefix("fd00::/128"))
	r := c.request("worker-b", "one", 1)
	r.Count6 = 1
	_, err := c.ipam.Assign(c.ctx(), r)
	wantText(t, err, "failed to request IPv6 addresses")
	if strings.Contains(c.store.Dump(), "k8s-pod-network.one") {
		t.Error("something is left")
	}
}
