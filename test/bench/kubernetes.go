//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"calico-cni/pkg/datastore"
	kubernetesstore "calico-cni/pkg/datastore/kubernetes"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// delay is what a distant API server's answers take more.
const delay = 10 * time.Millisecond

// manifests make an API server serve our objects.
var manifests = []string{"deploy/crds-v1.yaml", "deploy/rbac.yaml"}

// apiServer is a way to the API server.
type apiServer struct {
	title      string
	cluster    *kubetest.Cluster
	url        string
	authority  string // the file
	kubeconfig string
	data       *cluster
}

// startKubernetes starts an API server with the objects of a cluster with one
// node, and returns the direct way to it and the long one.
func startKubernetes() (near, far *apiServer, stop func(), err error) {
	server, err := kubetest.Launch(kubetest.Options{})
	if err != nil {
		return nil, nil, nil, err
	}
	stop = server.Close
	near = &apiServer{
		title: kubernetes, cluster: server, url: server.URL, authority: server.CAFile,
		kubeconfig: "/run/kubeconfig", data: &cluster{},
	}
	near.data.open = func(ctx context.Context) (datastore.Store, error) {
		store, err := kubernetesstore.Open(ctx, kubernetesstore.Options{Kubeconfig: near.kubeconfig, Group: model.GroupV1})
		if err != nil {
			return nil, err
		}
		store.Unlimit()
		return store, nil
	}
	near.data.nodes = near.nodes
	for _, manifest := range manifests {
		err = errors.Join(err, server.Apply(manifest))
	}
	err = errors.Join(err, kubetest.SaveKubeconfig(near.kubeconfig, server.URL, server.CAFile, kubetest.AdminToken))
	if err != nil {
		return nil, nil, stop, err
	}
	proxy, err := server.LaunchProxy("/run/proxy.crt")
	if err != nil {
		return nil, nil, stop, err
	}
	proxy.Latency = delay
	stop = func() {
		proxy.Close()
		server.Close()
	}
	distance := *near
	far = &distance
	far.title, far.url, far.authority, far.kubeconfig = distant, proxy.URL, proxy.CAFile, "/run/kubeconfig-proxy"
	return near, far, stop, errors.Join(
		kubetest.SaveKubeconfig(far.kubeconfig, proxy.URL, proxy.CAFile, kubetest.AdminToken),
		near.data.put(clusterObjects()), near.nodes(node))
}

func (a *apiServer) name() string { return a.title }

func (a *apiServer) configure(document map[string]any) {
	document["datastore_type"] = "kubernetes"
	document["kubernetes"] = map[string]any{"kubeconfig": a.kubeconfig}
	document["policy"] = map[string]any{"type": "k8s"}
}

func (a *apiServer) traffic() (calls, bytes int, err error) { return a.cluster.Traffic() }

func (a *apiServer) shared() *cluster { return a.data }

func (a *apiServer) arguments(p pod) string {
	return "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + p.name + ";K8S_POD_INFRA_CONTAINER_ID=" + p.name
}

const podsPath = "/api/v1/namespaces/default/pods"

func (a *apiServer) makePod(p pod, node string) error {
	_, err := a.cluster.Admin().Try(http.MethodPost, podsPath, map[string]any{
		"metadata": map[string]any{"name": p.name, "labels": map[string]any{"app": "web"}},
		"spec": map[string]any{
			"nodeName": node, "serviceAccountName": "default",
			"containers": []any{map[string]any{"name": "web", "image": "web"}},
		},
	})
	if err != nil {
		return fmt.Errorf("making pod %s: %w", p.name, err)
	}
	return nil
}

func (a *apiServer) removePod(p pod) error {
	_, err := a.cluster.Admin().Try(http.MethodDelete, podsPath+"/"+p.name+"?gracePeriodSeconds=0", nil)
	if err != nil {
		return fmt.Errorf("removing pod %s: %w", p.name, err)
	}
	return nil
}

func (a *apiServer) nodes(names ...string) error {
	for _, name := range names {
		_, err := a.cluster.Admin().Try(http.MethodPost, "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": name}})
		if err != nil {
			return fmt.Errorf("making node %s: %w", name, err)
		}
	}
	return nil
}
