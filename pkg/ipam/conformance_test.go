package ipam

import (
	"testing"

	"calico-cni/pkg/datastore/memory"
)

func TestFirst(t *testing.T) {
	c := newCluster(t, memory.Options{})
	c.p26()
	c.want(c.assign("worker-b", "one", 1), "10.77.0.0/26")
	c.want(c.assign("worker-b", "two", 1), "10.77.0.1/26")
	c.release("one")
	c.want(c.assign("worker-b", "three", 1), "10.77.0.2/26")
	t.Log(c.store.Dump())
	for _, call := range c.store.Calls() {
		t.Log(call)
	}
	c.assign("worker-b", "many", 61)
	c.want(c.assign("worker-b", "four", 1), "10.77.0.0/26")
	c.want(c.assign("worker-b", "five", 1), "10.77.0.64/26")
	r, err := c.ipam.Assign(c.ctx(), c.request("worker-b", "six", 257))
	t.Log(len(r.IPv4.Addresses), r.IPv4.Short, err, r.Err())
	verifyConsistent(t, c.store)
}
