package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/session"
)

func TestDelOfAnotherSandbox(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	old := n.add(inPod, container("old")).IPs[0].Address.IP.String()
	n.dataplane.links = nil
	n.dataplane = newFakeDataplane()
	n.add(inPod, container("new"))
	n.del(inPod, container("old"))
	for _, endpoint := range n.endpoints() {
		if endpoint.Spec.ContainerID != "new" {
			t.Errorf("the record names %s", endpoint.Spec.ContainerID)
		}
	}
	if _, held := n.allocated()[old]; held || len(n.endpoints()) != 1 || len(n.dataplane.links) != 1 {
		t.Errorf("allocated %v, endpoints %d, links %v", n.allocated(), len(n.endpoints()), n.dataplane.links)
	}
}

func TestDelWithoutRecord(t *testing.T) {
	t.Parallel()
	t.Run("Network/45 endpoint gone: succeeds and frees", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add(inPod)
		for name := range n.endpoints() {
			n.store.Uproot(model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: name}.Path())
		}
		n.del(inPod)
		n.nothingLeft()
	})
	for name, change := range map[string]func(*invocation.Call){"k8s": inPod, "cni": func(*invocation.Call) {}} {
		t.Run("Network/48 never added, without netns/"+name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.del(change, func(call *invocation.Call) { call.Netns = "" })
			n.nothingLeft()
		})
	}
}

func TestDelUnreachable(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*invocation.Call){"k8s": inPod, "cni": func(*invocation.Call) {}} {
		t.Run("Network/46 "+name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.add(change)
			before := n.store.Dump()
			n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
			err := n.plugin.Del(deadline(t), n.call(invocation.Del, n.config(), change))
			wantCode(t, err, cnierr.TryAgainLater)
			if n.store.Dump() != before || len(n.dataplane.links) != 1 {
				t.Error("something was touched")
			}
		})
	}
}

func TestDelConflicts(t *testing.T) {
	t.Parallel()
	t.Run("Network/47 at most 6 tries in all", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add(inPod)
		tries := 0
		n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() && strings.Contains(call.String(), "WorkloadEndpoint") {
				tries++
				for name := range n.endpointsQuietly() {
					path := model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: name}.Path()
					value, _ := n.store.Raw(path)
					n.store.Plant(path, value)
				}
			}
			return nil
		}})
		err := n.plugin.Del(deadline(t), n.call(invocation.Del, n.config(), inPod))
		if err == nil || tries != 6 {
			t.Errorf("%d tries, error %v", tries, err)
		}
		if len(n.dataplane.links) != 1 || len(n.allocated()) != 1 {
			t.Error("interface or address are gone although the record stays")
		}
		n.store.SetHooks(memory.Hooks{})
		n.del(inPod)
		n.nothingLeft()
	})
}

// endpointsQuietly lists the endpoints without disturbing the store's hooks.
func (n *node) endpointsQuietly() map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(n.store.Dump()) {
		if _, rest, found := strings.Cut(line, "/workloadendpoints/shop/"); found {
			name, _, _ := strings.Cut(rest, `"`)
			names[name] = true
		}
	}
	return names
}

func TestDelOrder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*invocation.Call)
		want   []string
	}{
		{"Kubernetes", inPod, []string{"endpoint", "interface", "addresses"}},
		{"other orchestrators", func(*invocation.Call) {}, []string{"addresses", "endpoint", "interface"}},
	} {
		t.Run("Network/49 "+test.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.add(test.change)
			var order []string
			n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
				if !call.IsWrite() {
					return nil
				}
				if len(n.dataplane.links) == 0 && !slices.Contains(order, "interface") {
					order = append(order, "interface")
				}
				if strings.Contains(call.String(), "WorkloadEndpoint") {
					order = append(order, "endpoint")
				} else {
					order = append(order, "addresses")
				}
				return nil
			}})
			n.del(test.change)
			if !slices.Contains(order, "interface") {
				order = append(order, "interface")
			}
			if !slices.Equal(order, test.want) {
				t.Errorf("order %v, want %v", order, test.want)
			}
		})
	}
}

func TestDelFailures(t *testing.T) {
	t.Parallel()
	t.Run("Network/50 IPAM error reported after the rest is done", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add()
		n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error {
			if call.IsWrite() && strings.Contains(call.String(), "handle") {
				return memory.Down(call)
			}
			return nil
		}})
		err := n.plugin.Del(deadline(t), n.call(invocation.Del, n.config()))
		wantCode(t, err, cnierr.TryAgainLater, "calico-ipam")
		if len(n.endpoints()) != 0 || len(n.dataplane.links) != 0 {
			t.Error("endpoint or interface are still there")
		}
		n.store.SetHooks(memory.Hooks{})
		n.del()
		n.nothingLeft()
	})
	t.Run("a link that stays keeps its addresses", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.add(inPod)
		n.dataplane.fail["Delete"] = errors.New("hung")
		if err := n.plugin.Del(deadline(t), n.call(invocation.Del, n.config(), inPod)); err == nil {
			t.Error("DEL succeeded")
		}
		if len(n.allocated()) != 1 {
			t.Error("the address is free although the link is there")
		}
	})
	for name, change := range map[string]func(*invocation.Call){"k8s": inPod, "cni": func(*invocation.Call) {}} {
		t.Run("Linux/45 our own namespace: addresses are freed, then code 8/"+name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.add(change)
			clear(n.dataplane.links)
			n.dataplane.fail["Delete"] = cnierr.New(cnierr.OwnNamespace, "CNI_NETNS is our own")
			wantCode(t, n.plugin.Del(deadline(t), n.call(invocation.Del, n.config(), change)), cnierr.OwnNamespace)
			n.nothingLeft()
		})
	}
}

// collapsing is a data plane on which another interface of the container goes
// while one is deleted, because their namespace is being destroyed.
type collapsing struct{ *fakeDataplane }

func (c collapsing) Delete(ctx context.Context, r dataplane.Removal) error {
	clear(c.links)
	return c.fakeDataplane.Delete(ctx, r)
}

func TestDelOfSecondInterfaceWhileTheFirstGoes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.add(inPod)
	n.add(inPod, ifName("net1"))
	n.plugin.Dataplane = func(*session.Session) dataplane.Dataplane { return collapsing{n.dataplane} }
	n.del(inPod, ifName("net1"))
	n.nothingLeft()
}
