package windows

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/windows/hns"
	"calico-cni/windows/hnssim"
)

func TestRepair(t *testing.T) {
	t.Parallel()
	t.Run("Windows/29 left over endpoint with the pod's address", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			r := n.request("old", "10.48.5.68/26")
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			n.removeNamespace(r.Namespace)
			n.add("new", "10.48.5.68/26")
			n.wantNames(n.endpointNames(), "Calico_ep", "new_Calico")
		})
	})
	t.Run("a live pod with the address keeps it", func(t *testing.T) {
		n := newNode(t, l2bridge)
		n.add("old", "10.48.5.68/26")
		_, err := n.tryAdd(n.request("new", "10.48.5.68/26"))
		wantCode(t, err, cnierr.HNSRefused, "in use")
		n.wantNames(n.endpointNames(), "Calico_ep", "old_Calico")
	})
	t.Run("Windows/30 creation fails three times", func(t *testing.T) {
		n := newNode(t)
		n.add("c0", "10.48.5.67/26")
		n.engine.Inject(hnssim.Fault{Call: "CreateEndpoint", Times: 3, Code: 0x80070015})
		n.add("c1", "10.48.5.68/26")
	})
	t.Run("Windows/30 creation fails four times", func(t *testing.T) {
		n := newNode(t)
		n.add("c0", "10.48.5.67/26")
		n.engine.Inject(hnssim.Fault{Call: "CreateEndpoint", Times: 4, Code: 0x80070015, After: true})
		_, err := n.tryAdd(n.request("c1", "10.48.5.68/26"))
		wantCode(t, err, cnierr.HNSRefused, "0x80070015")
		n.wantNames(n.endpointNames(), "Calico_ep", "c0_Calico")
	})
	t.Run("Windows/31 attach failure removes the new endpoint", func(t *testing.T) {
		n := newNode(t)
		n.add("c0", "10.48.5.67/26")
		n.engine.Inject(hnssim.Fault{Call: "ModifyNamespace", Code: 0x80070015})
		_, err := n.tryAdd(n.request("c1", "10.48.5.68/26"))
		wantCode(t, err, cnierr.HNSRefused, "attaching")
		n.engine.ClearFaults()
		n.wantNames(n.endpointNames(), "Calico_ep", "c0_Calico")
	})
	t.Run("Windows/31 the namespace is gone: at once, and nothing is left", func(t *testing.T) {
		n := newNode(t)
		r := n.request("c1", "10.48.5.68/26")
		n.removeNamespace(r.Namespace)
		_, err := n.tryAdd(r)
		wantCode(t, err, cnierr.InvalidEnvironment, "CNI_NETNS", r.Namespace)
		n.wantNames(n.endpointNames(), "Calico_ep")
		if made := n.sent("CreateEndpoint"); len(made) != 2 {
			t.Errorf("%d endpoints were made, want the host's and one try", len(made))
		}
	})
	t.Run("Windows/32 second ADD with a new address", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			n := newNode(t, mode)
			r := n.request("c1", "10.48.5.68/26")
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			r.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.48.5.69/26")}
			if _, err := n.tryAdd(r); err != nil {
				t.Fatal(err)
			}
			if got := addressOf(n.endpoint("c1_Calico")).String(); got != "10.48.5.69" {
				t.Errorf("its address is %s", got)
			}
		})
	})
	t.Run("second ADD with the same address adopts the endpoint", func(t *testing.T) {
		n := newNode(t)
		r := n.request("c1", "10.48.5.68/26")
		first, err := n.tryAdd(r)
		if err != nil {
			t.Fatal(err)
		}
		second, err := n.tryAdd(r)
		if err != nil {
			t.Fatal(err)
		}
		if !hns.SameID(first.ID, second.ID) || len(policiesOf(n.endpoint("c1_Calico"), "ACL")) != 1 {
			t.Errorf("%+v became %+v", first, second)
		}
	})
	t.Run("every call of ADD fails once, before and after its work", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			calls := callsOf(t, mode)
			for at := range calls {
				for _, after := range []bool{false, true} {
					n := newNode(t, mode)
					n.engine.Inject(hnssim.Fault{Skip: at, Times: 1, Code: 0x80070015, After: after})
					r := n.requestQuietly("c1", "10.48.5.68/26")
					if _, err := n.tryAdd(r); err != nil {
						n.wantNoEndpointOf("c1")
					}
					n.engine.ClearFaults()
					if _, err := n.tryAdd(r); err != nil {
						t.Errorf("call %d (%s): the repetition fails: %v", at, calls[at].Name, err)
					}
					n.wantNames(n.endpointNames(), "Calico_ep", "c1_Calico")
					n.wantNames(n.networkNames(), "Calico")
				}
			}
		})
	})
	t.Run("killed at every call of ADD, then repeated", func(t *testing.T) {
		modes(t, func(t *testing.T, mode func(*Options)) {
			calls := callsOf(t, mode)
			for at := range calls {
				n := newNode(t, mode)
				r := n.requestQuietly("c1", "10.48.5.68/26")
				n.killedAt(at, r)
				if _, err := n.tryAdd(r); err != nil {
					t.Errorf("killed at call %d (%s): the repetition fails: %v", at, calls[at].Name, err)
				}
				n.wantNames(n.endpointNames(), "Calico_ep", "c1_Calico")
				n.wantNames(n.networkNames(), "Calico")
			}
		})
	})
	t.Run("lists are made again when an object goes meanwhile", func(t *testing.T) {
		n := newNode(t)
		n.add("c1", "10.48.5.68/26")
		gone := n.endpoint("c1_Calico").ID
		n.engine.Inject(hnssim.Fault{Call: "OpenEndpoint", Times: 1, During: func() { n.remove(gone) }})
		if _, err := n.plane.Owned(deadline(t)); err != nil {
			t.Error(err)
		}
	})
}

func (n *node) requestQuietly(container, address string) dataplane.Request {
	faults := n.engine.TakeFaults()
	defer n.engine.PutFaults(faults)
	return n.request(container, address)
}

func (n *node) wantNoEndpointOf(container string) {
	n.t.Helper()
	if slices.Contains(n.endpointNames(), container+"_Calico") {
		n.t.Errorf("an endpoint of the failed ADD is left: %v", n.endpointNames())
	}
}

func callsOf(t *testing.T, mode func(*Options)) []hnssim.Call {
	n := newNode(t, mode)
	r := n.request("c1", "10.48.5.68/26")
	n.engine.ClearLog()
	if _, err := n.tryAdd(r); err != nil {
		t.Fatal(err)
	}
	return n.engine.Calls()
}

func (n *node) killedAt(at int, r dataplane.Request) {
	ctx, kill := context.WithCancel(deadline(n.t))
	n.engine.Inject(hnssim.Fault{Skip: at, Times: 1, During: kill})
	dead := *n.plane
	dead.Options.Service = mortal{dead.Options.Service, ctx}
	_, _ = dead.Add(ctx, r)
	n.engine.ClearFaults()
}

type mortal struct {
	hns.Service
	life context.Context
}

func (m mortal) DeleteEndpoint(_ context.Context, id string) error {
	return m.Service.DeleteEndpoint(m.life, id)
}

func (m mortal) Detach(_ context.Context, namespaceID, endpointID string) error {
	return m.Service.Detach(m.life, namespaceID, endpointID)
}
