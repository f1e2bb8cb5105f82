//go:build linux

package main

import (
	"context"
	"errors"
	"os"

	"calico-cni/pkg/datastore"
	etcdstore "calico-cni/pkg/datastore/etcd"
	"calico-cni/pkg/model"
	"calico-cni/test/etcdtest"
)

// The engines' names.
const (
	etcd       = "etcd"
	embedded   = "embedded"
	kubernetes = "kubernetes"
	// distant is a Kubernetes whose answers take 10 ms more.
	distant = "kubernetes+10ms"
)

// anonymous is for containers that no orchestrator knows.
type anonymous struct{}

func (anonymous) arguments(pod) string      { return "" }
func (anonymous) makePod(pod, string) error { return nil }
func (anonymous) removePod(pod) error       { return nil }

// embeddedFile is the datastore that needs no server.
type embeddedFile struct{ anonymous }

func (embeddedFile) name() string { return embedded }

// Other engines have pods on the same host.
func (embeddedFile) configure(document map[string]any) {
	document["pools"] = []any{map[string]any{"cidr": "10.128.0.0/10"}}
}

func (embeddedFile) traffic() (calls, bytes int, err error) { return -1, -1, nil }
func (embeddedFile) shared() *cluster                       { return nil }

// etcdServer is one server of etcd.
type etcdServer struct {
	anonymous
	server *etcdtest.Server
	data   *cluster
}

// startEtcd starts a server with the objects of a cluster with one node.
func startEtcd() (*etcdServer, error) {
	folder := "/run/etcd"
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	server, err := etcdtest.Launch(folder)
	if err != nil {
		return nil, err
	}
	e := etcdOn(server)
	return e, errors.Join(e.data.put(clusterObjects()), e.data.nodes(node))
}

func etcdOn(server *etcdtest.Server) *etcdServer {
	e := &etcdServer{server: server, data: &cluster{}}
	e.data.open = func(ctx context.Context) (datastore.Store, error) {
		return etcdstore.Open(ctx, etcdstore.Options{Endpoints: []string{server.Endpoint}})
	}
	e.data.nodes = func(names ...string) error { return e.data.put(nodesNamed(names...)) }
	return e
}

func nodesNamed(names ...string) datastore.Step {
	var step datastore.Step
	for _, name := range names {
		step = append(step, datastore.Put(model.ResourceKey{Kind: model.KindNode, Name: name},
			&model.Node{Metadata: model.Metadata{Name: name}}, datastore.Absent))
	}
	return step
}

func (*etcdServer) name() string { return etcd }

func (e *etcdServer) configure(document map[string]any) {
	document["etcd_endpoints"] = e.server.Endpoint
}

func (e *etcdServer) shared() *cluster { return e.data }

func (e *etcdServer) traffic() (calls, bytes int, err error) {
	traffic, err := e.server.Traffic()
	for _, count := range traffic.Calls {
		calls += count
	}
	return calls, traffic.Bytes, err
}
