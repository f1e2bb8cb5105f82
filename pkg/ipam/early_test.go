package ipam

import (
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// TestEarly: what a process reads while it waits for another one of its host
// serves it as if it had read afterwards.
func TestEarly(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// before the early read, and between it and the request.
		before, meanwhile func(*cluster)
		want              string
		// again is how often the affinities are read after that.
		again int
	}{
		"own block has room": {
			before:    func(c *cluster) { c.assign("worker-b", "c0", 1) },
			meanwhile: func(c *cluster) { c.assign("worker-b", "c1", 1) },
			want:      "10.77.0.2/26", again: 0,
		},
		"first block was claimed meanwhile": {
			before:    func(*cluster) {},
			meanwhile: func(c *cluster) { c.assign("worker-b", "c1", 1) },
			want:      "10.77.0.1/26", again: 1,
		},
		"own block was filled and the next one claimed meanwhile": {
			before:    func(c *cluster) { c.assign("worker-b", "c0", 1) },
			meanwhile: func(c *cluster) { c.assign("worker-b", "c1", 64) },
			want:      "10.77.0.65/26", again: 1,
		},
		"own block was released meanwhile": {
			before: func(c *cluster) { c.assign("worker-b", "c0", 1) },
			meanwhile: func(c *cluster) {
				c.release("c0")
				if err := c.ipam.ReleaseHostAffinities(c.ctx(), model.AffinityHost, "worker-b", true); err != nil {
					c.Fatal(err)
				}
			},
			// Its affinity, if it were there, would be one without block.
			want: "10.77.0.0/26", again: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forBothKinds(t, func(t *testing.T, c *cluster) {
				c.p26()
				test.before(c)
				request := c.request("worker-b", "c9", 1)
				request.Early = true
				_, held, err := datastore.Prefetch(c.ctx(), c.store, nil, AssignQueries(request))
				if err != nil {
					t.Fatal(err)
				}
				test.meanwhile(c)
				c.store.ForgetCalls()
				got, err := New(held, Options{Now: c.clock.Now}).Assign(c.ctx(), request)
				if err != nil {
					t.Fatal(err)
				}
				again := 0
				for _, call := range c.store.Calls() {
					for _, query := range call.Queries {
						if query == ownAffinities("worker-b", request.families()[0]) {
							again++
						}
					}
				}
				if again != test.again {
					t.Errorf("the affinities were read %d times, want %d", again, test.again)
				}
				c.want(got.IPv4.Addresses, test.want)
			})
		})
	}
}

// TestEarlyLimit: the limit is not said to be reached on old answers.
func TestEarlyLimit(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		c.assign("worker-b", "c0", 64)
		request := c.request("worker-b", "c9", 1)
		request.Early, request.MaxBlocks = true, 1
		_, held, err := datastore.Prefetch(c.ctx(), c.store, nil, AssignQueries(request))
		if err != nil {
			t.Fatal(err)
		}
		c.release("c0")
		if err := c.ipam.ReleaseHostAffinities(c.ctx(), model.AffinityHost, "worker-b", true); err != nil {
			t.Fatal(err)
		}
		if _, err := New(held, Options{Now: c.clock.Now}).Assign(c.ctx(), request); err != nil {
			t.Errorf("the host has no block any more: %v", err)
		}
	})
}
