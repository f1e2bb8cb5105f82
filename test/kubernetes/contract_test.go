//go:build kubernetes && linux

package kubernetes

import (
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/contracttest"
)

func TestContract(t *testing.T) {
	groups(t, func(t *testing.T, e *env) {
		contracttest.Run(t, func(t *testing.T) datastore.Store {
			e.wipe()
			return e.open()
		})
	})
}
