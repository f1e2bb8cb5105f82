package windows

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
)

func TestLock(t *testing.T) {
	t.Parallel()
	t.Run("Windows/40 twenty ADDs at once", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			var all sync.WaitGroup
			for i := range 20 {
				r := n.request(fmt.Sprintf("c%02d", i), fmt.Sprintf("10.48.5.%d/26", 67+i))
				all.Go(func() {
					if _, err := n.tryAdd(r); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if got := len(n.endpoints()); got != 21 {
				t.Errorf("%d endpoints", got)
			}
			if made := n.sent("CreateNetwork"); len(made) != 1 {
				t.Errorf("%d networks were made", len(made))
			}
		})
	})
	t.Run("Windows/41 lock held elsewhere", func(t *testing.T) {
		n := newNode(t)
		unlock, err := n.engine.Host().Lock(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		r := n.request("c1", "10.48.5.68/26")
		n.engine.ClearLog()
		ctx, cancel := context.WithTimeout(deadline(t), 10*time.Millisecond)
		defer cancel()
		_, err = n.plane.Add(ctx, r)
		wantCode(t, err, cnierr.LockNotObtained, "network lock")
		n.wantUntouched()
	})
}

func TestCost(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode func(*Options)) {
		n := newNode(t, mode)
		for i := range 20 {
			n.add(fmt.Sprintf("c%d", i), fmt.Sprintf("10.48.5.%d/26", 67+i))
		}
		n.engine.ClearLog()
		link := n.add("new", "10.48.5.90/26")
		if err := n.plane.Confirm(deadline(t), link); err != nil {
			t.Fatal(err)
		}
		operations := slices.DeleteFunc(n.engine.Operations(), func(o string) bool { return o == "CreateNamespace" })
		if len(operations) > 8 || slices.Contains(operations, "Endpoints") || slices.Contains(operations, "EndpointsOfNetwork") {
			t.Errorf("ADD has %d operations: %v", len(operations), operations)
		}
		n.engine.ClearLog()
		n.del("new")
		operations = n.engine.Operations()
		if len(operations) > 4 || slices.Contains(operations, "Endpoints") || slices.Contains(operations, "EndpointsOfNetwork") {
			t.Errorf("DEL has %d operations: %v", len(operations), operations)
		}
	})
}
