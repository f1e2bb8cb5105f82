package memory_test

import (
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/contracttest"
	"calico-cni/pkg/datastore/memory"
)

func TestContract(t *testing.T) {
	for name, options := range map[string]memory.Options{
		"transactional":     {},
		"non-transactional": {NonTransactional: true},
	} {
		t.Run(name, func(t *testing.T) {
			contracttest.Run(t, func(*testing.T) datastore.Store { return memory.New(options) })
		})
	}
}
