package model_test

import (
	"net/netip"
	"testing"

	"calico-cni/pkg/model"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func TestPaths(t *testing.T) {
	t.Parallel()
	for path, key := range map[string]model.Key{
		"/calico/ipam/v2/assignment/ipv4/block/10.77.3.64-26":                      model.BlockKey{CIDR: prefix("10.77.3.64/26")},
		"/calico/ipam/v2/assignment/ipv6/block/fd00:77:1::40-122":                  model.BlockKey{CIDR: prefix("fd00:77:1::40/122")},
		"/calico/ipam/v2/assignment/ipv6/block/::ffff:10.77.3.64-122":              model.BlockKey{CIDR: prefix("::ffff:10.77.3.64/122")},
		"/calico/ipam/v2/host/worker-b/ipv4/block/10.77.3.64-26":                   model.AffinityKey{Type: "host", Host: "worker-b", CIDR: prefix("10.77.3.64/26")},
		"/calico/ipam/v2/virtual/load-balancer/ipv6/block/fd00::-122":              model.AffinityKey{Type: "virtual", Host: "load-balancer", CIDR: prefix("fd00::/122")},
		"/calico/ipam/v2/@/Worker-B/ipv4/block/10.77.3.64-26":                      model.AffinityKey{Type: "@", Host: "Worker-B", CIDR: prefix("10.77.3.64/26")},
		"/calico/ipam/v2/host/worker-b":                                            model.HostMarkerKey{Host: "worker-b"},
		"/calico/ipam/v2/handle/Net-A.ABC":                                         model.HandleKey{ID: "Net-A.ABC"},
		"/calico/ipam/v2/handle/net.abc\r junk":                                    model.HandleKey{ID: "net.abc\r junk"},
		"/calico/ipam/v2/config":                                                   model.IPAMConfigKey{},
		"/calico/resources/v3/projectcalico.org/ippools/pods":                      model.ResourceKey{Kind: model.KindIPPool, Name: "pods"},
		"/calico/resources/v3/projectcalico.org/ipreservations/gw":                 model.ResourceKey{Kind: model.KindIPReservation, Name: "gw"},
		"/calico/resources/v3/projectcalico.org/nodes/worker-b":                    model.ResourceKey{Kind: model.KindNode, Name: "worker-b"},
		"/calico/resources/v3/projectcalico.org/clusterinformations/default":       model.ResourceKey{Kind: model.KindClusterInformation, Name: "default"},
		"/calico/resources/v3/projectcalico.org/profiles/k8s-pod-network":          model.ResourceKey{Kind: model.KindProfile, Name: "k8s-pod-network"},
		"/calico/resources/v3/projectcalico.org/workloadendpoints/shop/n1-k8s-eth": model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: "n1-k8s-eth"},
		"/calico/resources/v3/projectcalico.org/ipamconfigurations/default":        model.ResourceKey{Kind: model.KindIPAMConfiguration, Name: "default"},
		"/calico/resources/v3/projectcalico.org/virtualmachines/shop/vm1":          model.ResourceKey{Kind: model.KindVirtualMachine, Namespace: "shop", Name: "vm1"},
		"/calico/resources/v3/projectcalico.org/virtualmachineinstances/shop/vm1":  model.ResourceKey{Kind: model.KindVirtualMachineInstance, Namespace: "shop", Name: "vm1"},
	} {
		if made := key.Path(); made != path {
			t.Errorf("%s: path %q, want %q", key, made, path)
		}
		if parsed, ok := model.ParsePath(path); !ok || parsed != key {
			t.Errorf("%q: parsed %v, %v; want %v", path, parsed, ok, key)
		}
	}
}

func TestPathsOfNothing(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"",
		"/calico/ipam/v2/",
		"/calico/ipam/v2/config/",
		"/calico/ipam/v2/host/",
		"/calico/ipam/v2/virtual/load-balancer",
		"/calico/ipam/v2/handle/",
		"/calico/ipam/v2/handle/a/b",
		"/calico/ipam/v2/assignment/ipv4/block/10.77.3.64",       // no length
		"/calico/ipam/v2/assignment/ipv4/block/10.77.3.64/26",    // not escaped
		"/calico/ipam/v2/assignment/ipv4/block/10.77.3.65-26",    // host bits
		"/calico/ipam/v2/assignment/ipv6/block/10.77.3.64-26",    // wrong family
		"/calico/ipam/v2/assignment/ipv6/block/fd00:0:0::40-122", // not canonical: another key would be written
		"/calico/ipam/v2/assignment/ipv4/other/10.77.3.64-26",
		"/calico/ipam/v2/host//ipv4/block/10.77.3.64-26",
		"/calico/ipam/v2/robot/r2/ipv4/block/10.77.3.64-26",
		"/calico/resources/v3/projectcalico.org/ippools/",
		"/calico/resources/v3/projectcalico.org/ippools/a/b",
		"/calico/resources/v3/projectcalico.org/workloadendpoints/n1-k8s-eth",
		"/calico/resources/v3/projectcalico.org/workloadendpoints//n1-k8s-eth",
		"/calico/resources/v3/projectcalico.org/workloadendpoints/shop/",
		"/calico/resources/v3/projectcalico.org/bgppeers/a",
		"/registry/pods/shop/web-0",
	} {
		if key, ok := model.ParsePath(path); ok {
			t.Errorf("%q: parsed as the %s", path, key)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	f.Add("/calico/ipam/v2/assignment/ipv4/block/10.77.3.64-26")
	f.Add("/calico/ipam/v2/host/worker-b/ipv6/block/fd00::-122")
	f.Add("/calico/resources/v3/projectcalico.org/workloadendpoints/shop/a")
	f.Fuzz(func(t *testing.T, path string) {
		if key, ok := model.ParsePath(path); ok && key.Path() != path {
			t.Errorf("%q: parsed as the %s, whose path is %q", path, key, key.Path())
		}
	})
}
