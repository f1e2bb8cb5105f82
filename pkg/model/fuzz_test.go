package model_test

import (
	"reflect"
	"testing"

	"calico-cni/pkg/model"
)

// FuzzDecodeBlock demands that whatever is read as a block can be used, and is
// the same after it was written and read again.
func FuzzDecodeBlock(f *testing.F) {
	for _, one := range cluster(f) {
		if _, ok := mustParse(f, one.Key).(model.BlockKey); ok {
			f.Add([]byte(one.Value))
		}
	}
	f.Add([]byte(fourBlock(nil)))
	f.Add([]byte(fourBlock(map[string]string{"sequenceNumber": "18446744073709551615", "future": `{"a":[1]}`})))
	f.Fuzz(func(t *testing.T, document []byte) {
		value, err := model.Decode(fourKey, document)
		if err != nil {
			return
		}
		block := value.(*model.Block)
		if len(block.Allocations) != block.Size() {
			t.Fatalf("%d allocations in a block of %d", len(block.Allocations), block.Size())
		}
		for _, index := range block.Allocations {
			if index != model.Free {
				_ = block.Attributes[index].HandleID
			}
		}
		written := mustEncode(t, fourKey, block)
		again := mustDecode(t, fourKey, written)
		if rewritten := mustEncode(t, fourKey, again); rewritten != written {
			t.Errorf("first  %s\nsecond %s", written, rewritten)
		}
		if clone := mustEncode(t, fourKey, block.Clone()); clone != written {
			t.Errorf("block %s\nclone %s", written, clone)
		}
		if again := again.(*model.Block); !reflect.DeepEqual(again.Allocations, block.Allocations) || again.CIDR != block.CIDR {
			t.Errorf("read again: %+v, was %+v", again, block)
		}
	})
}
