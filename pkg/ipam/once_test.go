package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// onceRequests ask for an address for the handle of "one" unless it has one of
// the family.
func onceRequests() map[string]func(c *cluster) error {
	return map[string]func(c *cluster) error{
		"any address": func(c *cluster) error {
			r := c.request("worker-b", "one", 1)
			r.OncePerFamily = true
			_, err := c.ipam.Assign(c.ctx(), r)
			return err
		},
		"a certain address": func(c *cluster) error {
			r := c.address("worker-b", "one", "10.77.0.9")
			r.OncePerFamily = true
			_, err := c.ipam.AssignAddress(c.ctx(), r)
			return err
		},
	}
}

// forBothRequests runs a scenario with each of onceRequests on each kind of
// engine.
func forBothRequests(t *testing.T, scenario func(t *testing.T, c *cluster, request func(c *cluster) error)) {
	t.Helper()
	for name, request := range onceRequests() {
		for kind, options := range map[string]memory.Options{"transactional": {}, "sequential": {NonTransactional: true}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, options)
				bothPools(c)
				scenario(t, c, request)
			})
		}
	}
}

// TestOncePerFamily: a handle gets no second address of a family, whatever is
// asked for.
func TestOncePerFamily(t *testing.T) {
	t.Parallel()
	forBothRequests(t, func(t *testing.T, c *cluster, request func(c *cluster) error) {
		r := c.request("worker-b", "one", 0)
		r.Count6 = 1
		if _, err := c.ipam.Assign(c.ctx(), r); err != nil {
			t.Fatal(err)
		}
		if err := request(c); err != nil {
			t.Errorf("the other family is there: %v", err)
		}
		if err := request(c); !errors.Is(err, ErrHandleHolds) {
			t.Errorf("the family is there: %v", err)
		}
		if held := c.held("one"); len(held) != 2 {
			t.Errorf("held are %v", held)
		}
		verifyConsistent(t, c.store)
	})
}

func TestOnceRivalIsFaster(t *testing.T) {
	t.Parallel()
	forBothRequests(t, func(t *testing.T, c *cluster, request func(c *cluster) error) {
		c.assign("worker-b", "other", 1)
		c.beforeFirstWrite(func() {
			c.clock.advance(1) // its own timestamp
			c.competitor().assign("worker-b", "one", 1)
		})
		if err := request(c); !errors.Is(err, ErrHandleHolds) {
			t.Errorf("%v", err)
		}
		if held := c.held("one"); len(held) != 1 {
			t.Errorf("held are %v", held)
		}
		verifyConsistent(t, c.store)
	})
}

// TestOnceAfterKilled: what somebody counted who was killed is in nobody's way.
func TestOnceAfterKilled(t *testing.T) {
	t.Parallel()
	forBothRequests(t, func(t *testing.T, c *cluster, request func(c *cluster) error) {
		c.assign("worker-b", "other", 1)
		c.plant(model.HandleKey{ID: handleOfOne}, `{"block":{"10.77.0.0/26":1,"10.77.0.64/26":2},"deleted":false}`)
		if holding := c.holding(); len(holding.Dangling) != 2 || len(holding.Allocations) != 0 {
			t.Errorf("%+v", holding)
		}
		if err := request(c); err != nil {
			t.Fatal(err)
		}
		if held := c.held("one"); len(held) != 1 {
			t.Errorf("held are %v", held)
		}
		c.release("one")
		verifyConsistent(t, c.store)
	})
}

// TestOnceUnreadable: what cannot be read may hold an address.
func TestOnceUnreadable(t *testing.T) {
	t.Parallel()
	forBothRequests(t, func(t *testing.T, c *cluster, request func(c *cluster) error) {
		c.assign("worker-b", "one", 1)
		c.plant(model.BlockKey{CIDR: netip.MustParsePrefix("10.77.0.0/26")}, `{`)
		if err := request(c); err == nil {
			t.Error("a second address may have been assigned")
		}
		if holding := c.holding(); len(holding.Unreadable) != 1 || len(holding.Allocations) != 0 {
			t.Errorf("%+v", holding)
		}
	})
}

// holding is what the handle of "one" holds.
func (c *cluster) holding() (found Holding) {
	c.Helper()
	err := c.ipam.ChangeOwner(c.ctx(), handleOfOne, func(holding Holding) (OwnerChange, error) {
		found = holding
		return OwnerChange{}, nil
	})
	if err != nil {
		c.Fatal(err)
	}
	return found
}

// beforeFirstWrite runs do once, before the first write.
func (c *cluster) beforeFirstWrite(do func()) {
	done := false
	c.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
		if call.IsWrite() && !done {
			done = true
			do()
		}
		return nil
	}})
}
