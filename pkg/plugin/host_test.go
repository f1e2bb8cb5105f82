package plugin

import (
	"net/netip"
	"slices"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

// TestEmbeddedHostOfOtherIPAM: no block tells of the pods of another IPAM
// plugin, which need the masquerading as well.
func TestEmbeddedHostOfOtherIPAM(t *testing.T) {
	t.Parallel()
	for orchestrator, change := range map[string]func(*invocation.Call){"k8s": inPod, "cni": func(*invocation.Call) {}} {
		t.Run(orchestrator, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.embedded = true
			n.install("recorder", recorder)
			conf := n.config("ipam", map[string]any{"type": "recorder"})
			other := func(call *invocation.Call) { call.IfName = "eth1" }
			for _, second := range []func(*invocation.Call){func(*invocation.Call) {}, other} {
				if _, err := n.runAdd(n.call(invocation.Add, conf, change, container("c2"), second)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := n.runAdd(n.call(invocation.Add, conf, container("c1"))); err != nil {
				t.Fatal(err)
			}
			for _, left := range []struct {
				call    *invocation.Call
				present bool
			}{
				{n.call(invocation.Del, conf, container("c1")), true},
				{n.call(invocation.Del, conf, change, container("c2"), other), true},
				{n.call(invocation.Del, conf, change, container("c2")), false},
			} {
				if err := n.plugin.Del(deadline(t), left.call); err != nil {
					t.Fatal(err)
				}
				if n.host.present != left.present {
					t.Errorf("after DEL of %s %s the masquerading is there: %v", left.call.ContainerID, left.call.IfName, n.host.present)
				}
			}
		})
	}
}

func TestEmbeddedHost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.embedded = true
	n.put(datastore.Step{create(model.KindIPPool, "nat", &model.IPPool{Metadata: model.Metadata{Name: "nat"}, RawCIDR: "10.78.0.0/24", NATOutgoing: true})})
	n.add()
	n.add(container("c2"))
	if !n.host.present || !slices.Contains(n.host.masquerade, NATPool{CIDR: netip.MustParsePrefix("10.78.0.0/24"), NATOutgoing: true}) {
		t.Fatalf("masquerading %v", n.host.masquerade)
	}
	n.del()
	if !n.host.present {
		t.Error("the masquerading is gone while an address is in use")
	}
	n.host.present = false
	err := n.plugin.Status(deadline(t), n.call(invocation.Status, n.config()))
	wantCode(t, err, cnierr.LimitedConnectivity, "nftables")
	n.host.present = true
	n.del(container("c2"))
	if n.host.present {
		t.Error("the masquerading stays after the last address")
	}
	n.host.forwarding = cnierr.New(cnierr.LimitedConnectivity, "off")
	if err := n.plugin.Status(deadline(t), n.call(invocation.Status, n.config())); err != nil {
		t.Errorf("STATUS without pods: %v", err)
	}
}
