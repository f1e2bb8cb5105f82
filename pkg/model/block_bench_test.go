package model_test

import (
	"fmt"
	"testing"
	"time"

	"calico-cni/pkg/model"
)

// busyBlock is a block in which all addresses but a few are in use, each by
// another pod.
func busyBlock(cidr string) *model.Block {
	block := model.NewBlock(prefix(cidr), "host:worker-b", time.Unix(1772600767, 0), nil)
	for ordinal := range block.Size() - 4 {
		block.Allocations[ordinal] = ordinal
		block.SequenceForAllocation[ordinal] = block.SequenceNumber
		block.Attributes = append(block.Attributes, model.Attribute{
			HandleID: fmt.Sprintf("k8s-pod-network.%064d", ordinal),
			Owner: map[string]string{"node": "worker-b", "namespace": "shop", "pod": "cart-5d78c9869d-abcde",
				"timestamp": "2026-03-04 05:06:07.890123456 +0000 UTC"},
		})
	}
	block.Unallocated = block.Unallocated[block.Size()-4:]
	return block
}

func BenchmarkBlocks(b *testing.B) {
	for _, cidr := range []string{"10.77.0.0/26", "10.77.0.0/20"} {
		block := busyBlock(cidr)
		key := model.BlockKey{CIDR: block.CIDR}
		body, err := model.Encode(key, block)
		if err != nil {
			b.Fatal(err)
		}
		for name, work := range map[string]func() error{
			"decode": func() error { _, err := model.Decode(key, body); return err },
			"encode": func() error { _, err := model.Encode(key, block); return err },
			"clone":  func() error { block.Clone(); return nil },
		} {
			b.Run(name+" "+cidr, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := work(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
