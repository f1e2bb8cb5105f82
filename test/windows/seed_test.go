//go:build wine && linux

package windows

import (
	"context"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/etcd"
	"calico-cni/pkg/model"
	"calico-cni/test/etcdtest"
)

// seedEtcd writes what a cluster with the node win-1 and one pool has.
func seedEtcd(t *testing.T, server *etcdtest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{server.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ready := true
	resource := func(kind model.Kind, name string, value any) datastore.Mutation {
		return datastore.Put(model.ResourceKey{Kind: kind, Name: name}, value, datastore.Absent)
	}
	pool := &model.IPPool{Metadata: model.Metadata{Name: "pods"}, RawCIDR: "10.48.0.0/16", BlockSize: 26, NATOutgoing: true, VXLANMode: "Always"}
	pool.ApplyDefaults()
	_, err = store.Write(ctx, datastore.Step{
		resource(model.KindClusterInformation, "default", &model.ClusterInformation{Metadata: model.Metadata{Name: "default"}, Ready: &ready}),
		resource(model.KindNode, "win-1", &model.Node{Metadata: model.Metadata{Name: "win-1"}}),
		resource(model.KindIPPool, "pods", pool),
		datastore.Put(model.IPAMConfigKey{}, &model.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true}, datastore.Absent),
	})
	if err != nil {
		t.Fatal(err)
	}
}
