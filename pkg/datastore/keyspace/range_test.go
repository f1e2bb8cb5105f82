package keyspace

import (
	"net/netip"
	"testing"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

func TestRangeOf(t *testing.T) {
	t.Parallel()
	const resources = "/calico/resources/v3/projectcalico.org/"
	for _, row := range []struct {
		query datastore.Query
		want  Range
	}{
		{datastore.Get{Key: model.HandleKey{ID: "Net.A"}}, Range{Path: "/calico/ipam/v2/handle/Net.A"}},
		{datastore.Get{Key: model.IPAMConfigKey{}}, Range{Path: "/calico/ipam/v2/config"}},
		{datastore.ListAffinities{Type: "host", Host: "b", Family: model.IPv4}, Range{Path: "/calico/ipam/v2/host/b/ipv4/block/", Prefix: true}},
		{datastore.ListAffinities{Host: "b", Family: model.IPv6}, Range{Path: "/calico/ipam/v2/host/b/ipv6/block/", Prefix: true}},
		{datastore.ListAffinities{Type: "virtual", Family: model.IPv6}, Range{Path: "/calico/ipam/v2/virtual/", Prefix: true}},
		{datastore.ListBlocks{Family: model.IPv4}, Range{Path: "/calico/ipam/v2/assignment/ipv4/block/", Prefix: true}},
		{datastore.ListBlocks{Family: model.IPv6, TextPrefix: "fd00:77:1::82", KeysOnly: true, Limit: 300},
			Range{Path: "/calico/ipam/v2/assignment/ipv6/block/fd00:77:1::82", Prefix: true, KeysOnly: true, Limit: 300}},
		{datastore.ListBlocks{Family: model.IPv4, Limit: -1}, Range{Path: "/calico/ipam/v2/assignment/ipv4/block/", Prefix: true}},
		{datastore.ListHandles{}, Range{Path: "/calico/ipam/v2/handle/", Prefix: true}},
		{datastore.ListResources{Kind: model.KindIPPool}, Range{Path: resources + "ippools/", Prefix: true}},
		{datastore.ListResources{Kind: model.KindNode, NamePrefix: "worker-"}, Range{Path: resources + "nodes/worker-", Prefix: true}},
		{datastore.ListResources{Kind: model.KindWorkloadEndpoint}, Range{Path: resources + "workloadendpoints/", Prefix: true}},
		{datastore.ListResources{Kind: model.KindWorkloadEndpoint, Namespace: "shop"}, Range{Path: resources + "workloadendpoints/shop/", Prefix: true}},
		{datastore.ListResources{Kind: model.KindWorkloadEndpoint, Namespace: "shop", NamePrefix: "n1-k8s-web-"},
			Range{Path: resources + "workloadendpoints/shop/n1-k8s-web-", Prefix: true}},
	} {
		if found, err := RangeOf(row.query); err != nil || found != row.want {
			t.Errorf("%v: %+v, %v; want %+v", row.query, found, err, row.want)
		}
	}
}

func TestRangeOfMistakes(t *testing.T) {
	t.Parallel()
	hostBits := netip.MustParsePrefix("10.77.3.65/26")
	for name, query := range map[string]datastore.Query{
		"nil":                             nil,
		"no key":                          datastore.Get{},
		"no handle id":                    datastore.Get{Key: model.HandleKey{}},
		"slash in a handle id":            datastore.Get{Key: model.HandleKey{ID: "a/b"}},
		"slash in a host":                 datastore.Get{Key: model.AffinityKey{Type: "host", Host: "a/b", CIDR: hostBits.Masked()}},
		"unknown type":                    datastore.Get{Key: model.AffinityKey{Type: "robot", Host: "a", CIDR: hostBits.Masked()}},
		"host bits":                       datastore.Get{Key: model.BlockKey{CIDR: hostBits}},
		"zero prefix":                     datastore.Get{Key: model.BlockKey{}},
		"namespace of a global kind":      datastore.Get{Key: model.ResourceKey{Kind: model.KindNode, Namespace: "shop", Name: "a"}},
		"no namespace":                    datastore.Get{Key: model.ResourceKey{Kind: model.KindWorkloadEndpoint, Name: "a"}},
		"unknown kind":                    datastore.Get{Key: model.ResourceKey{Kind: "BGPPeer", Name: "a"}},
		"affinities of no family":         datastore.ListAffinities{Type: "host", Host: "a"},
		"blocks of no family":             datastore.ListBlocks{},
		"global kind in a namespace":      datastore.ListResources{Kind: model.KindNode, Namespace: "shop"},
		"name prefix without a namespace": datastore.ListResources{Kind: model.KindWorkloadEndpoint, NamePrefix: "a"},
	} {
		if found, err := RangeOf(query); err == nil {
			t.Errorf("%s: %+v, want an error", name, found)
		}
	}
}
