package ipamplugin

import (
	"context"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

const namespacePath = "/calico/resources/v3/projectcalico.org/namespaces/shop"

// namespaceNode has a pool for namespaces of team a, and the namespace shop.
func namespaceNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.create(model.KindIPPool, "a", &model.IPPool{
		Metadata: model.Metadata{Name: "a"}, RawCIDR: "10.70.0.0/24", BlockSize: 26, NamespaceSelector: "team == 'a'",
	})
	n.store.Plant(namespacePath, `{"metadata":{"name":"shop","labels":{"team":"a"}}}`)
	n.store.ForgetCalls()
	return n
}

func (n *node) podCall(members ...any) *invocation.Call {
	call := n.call(invocation.Add, n.config(members...))
	call.Args = "IgnoreUnknown=1;K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop"
	return call
}

func kubeconfig() []any { return []any{"kubernetes", map[string]any{"kubeconfig": "/etc/kubeconfig"}} }

func policyK8s() []any { return []any{"policy", map[string]any{"type": "k8s"}} }

// TestNamespaceSelector: pools select the pod's namespace by its labels, which
// cost no round trip of their own.
func TestNamespaceSelector(t *testing.T) {
	t.Parallel()
	for name, members := range map[string][]any{"a kubeconfig": kubeconfig(), "policy k8s": policyK8s()} {
		n := namespaceNode(t)
		addresses, err := n.add(n.podCall(members...))
		if err != nil || len(addresses) != 1 || !strings.HasPrefix(addresses[0], "10.70.0.") {
			t.Errorf("%s: addresses %v, %v; want one of the pool for the namespace", name, addresses, err)
		}
		queries := n.store.Calls()[0].Queries
		for _, query := range []datastore.Query{
			datastore.Get{Key: model.ResourceKey{Kind: model.KindNamespace, Name: "shop"}},
			datastore.ListResources{Kind: model.KindIPPool},
		} {
			if !slices.Contains(queries, query) {
				t.Errorf("%s: the first batch does not ask for %s", name, query)
			}
		}
		if call := n.podCall(members...); !slices.Contains(n.plugin.AddQueries(call), queries[0]) {
			t.Errorf("%s: AddQueries lacks %s", name, queries[0])
		}
	}
	n := namespaceNode(t)
	addresses, err := n.add(n.podCall())
	if err != nil || len(addresses) != 1 || !strings.HasPrefix(addresses[0], "10.77.0.") {
		t.Errorf("nothing leads to the API: addresses %v, %v", addresses, err)
	}
	if addresses, err = n.add(n.call(invocation.Add, n.config(kubeconfig()...))); err != nil || !strings.HasPrefix(addresses[0], "10.77.0.") {
		t.Errorf("not a pod: addresses %v, %v", addresses, err)
	}
}

func TestNamespaceMissing(t *testing.T) {
	t.Parallel()
	n := namespaceNode(t)
	n.store.Uproot(namespacePath)
	_, err := n.add(n.podCall(policyK8s()...))
	if cnierr.CodeOf(err) != cnierr.TryAgainLater || !strings.Contains(err.Error(), "Namespace shop does not exist") {
		t.Errorf("no namespace: code %d, %v", cnierr.CodeOf(err), err)
	}
	call := n.podCall(policyK8s()...)
	call.Args += ";IP=10.70.0.9"
	if addresses, err := n.add(call); err != nil || len(addresses) != 1 {
		t.Errorf("a certain address needs no namespace: %v, %v", addresses, err)
	}
}

// TestNamespaceUnreadable: without the labels the wrong pool might be chosen.
func TestNamespaceUnreadable(t *testing.T) {
	t.Parallel()
	n := namespaceNode(t)
	n.store.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
	_, err := n.add(n.podCall(kubeconfig()...))
	if cnierr.CodeOf(err) != cnierr.TryAgainLater {
		t.Errorf("code %d, %v", cnierr.CodeOf(err), err)
	}
	n.store.SetHooks(memory.Hooks{})
	if held, err := ipam.New(n.store, ipam.Options{}).AddressesByHandle(deadline(t), "net.c1"); len(held) != 0 {
		t.Errorf("held are %v, %v", held, err)
	}
}
