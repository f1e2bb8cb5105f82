//go:build kubernetes && linux

package kubernetes

import (
	"errors"
	"slices"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

const podPath = "/api/v1/namespaces/shop/pods"

var endpointKey = model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: "shop", Name: "worker--b-k8s-web--0-eth0"}

// shop makes the namespace of the pods, which stays: only a controller could
// finish its deletion.
func (e *env) shop() {
	e.Helper()
	_, err := cluster.Admin().Try("POST", "/api/v1/namespaces", map[string]any{
		"metadata": map[string]any{"name": "shop", "labels": map[string]string{"team": "a"}, "annotations": map[string]string{"cni.projectcalico.org/ipv4pools": `["pods"]`}},
	})
	if err != nil && e.object("/api/v1/namespaces/shop") == nil {
		e.Fatal(err)
	}
}

// pod makes the pod web-0 anew.
func (e *env) pod() {
	e.Helper()
	e.deletePod()
	cluster.Admin().Do(e, "POST", podPath, map[string]any{
		"metadata": map[string]any{"name": "web-0", "labels": map[string]string{"app": "web"}},
		"spec": map[string]any{"nodeName": "worker-b", "serviceAccountName": "web", "containers": []any{map[string]any{
			"name": "web", "image": "none", "ports": []any{map[string]any{"name": "http", "containerPort": 8080}},
		}}},
	})
	e.Cleanup(e.deletePod)
}

func (e *env) deletePod() {
	_, err := cluster.Admin().Try("DELETE", podPath+"/web-0?gracePeriodSeconds=0", nil)
	if err != nil && e.object(podPath+"/web-0") != nil {
		e.Error(err)
	}
}

func (e *env) endpoint(store datastore.Store) (*model.WorkloadEndpoint, datastore.Revision) {
	e.Helper()
	value, revision := e.get(store, endpointKey)
	endpoint, _ := value.(*model.WorkloadEndpoint)
	return endpoint, revision
}

// TestEndpoint is the life of a pod's endpoint (datastore contract 4.11).
func TestEndpoint(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	store := e.open()
	e.shop()
	e.deletePod()
	if endpoint, _ := e.endpoint(store); endpoint != nil {
		t.Errorf("no pod, but %+v", endpoint)
	}
	e.pod()
	endpoint, revision := e.endpoint(store)
	if endpoint == nil || endpoint.Spec.Node != "worker-b" || endpoint.Spec.InterfaceName != "calia4fc3c48bd8" || endpoint.Spec.IPNetworks != nil ||
		len(endpoint.Spec.Ports) != 1 || endpoint.Spec.Profiles[1] != "ksa.shop.web" {
		t.Fatalf("endpoint of a new pod: %+v", endpoint)
	}
	add := endpoint.Clone()
	add.Spec.ContainerID, add.Spec.IPNetworks = "3f9c", []string{"10.77.3.64/32", "fd00:77:1::40/128"}
	written := e.write(store, datastore.Step{datastore.Put(endpointKey, add, revision)})
	found, current := e.endpoint(store)
	if found.Spec.ContainerID != "3f9c" || !slices.Equal(found.Spec.IPNetworks, add.Spec.IPNetworks) || current != written[endpointKey] {
		t.Errorf("after ADD: %+v at %s, written as %s", found, current, written[endpointKey])
	}
	e.wantAnnotations("10.77.3.64/32", "10.77.3.64/32,fd00:77:1::40/128", "3f9c")
	// A repeated ADD writes whatever the version is.
	e.write(store, datastore.Step{datastore.Put(endpointKey, add, revision)})
	e.fails(store, datastore.ErrConflict, datastore.Remove(endpointKey, revision))
	_, current = e.endpoint(store)
	e.write(store, datastore.Step{datastore.Remove(endpointKey, current)})
	e.wantAnnotations("", "", "3f9c")
	e.write(store, datastore.Step{datastore.Remove(endpointKey, datastore.Any)})
}

func (e *env) wantAnnotations(podIP, podIPs, containerID string) {
	e.Helper()
	object := e.object(podPath + "/web-0")
	for name, want := range map[string]string{
		model.AnnotationPodIP: podIP, model.AnnotationPodIPs: podIPs, model.AnnotationContainerID: containerID,
	} {
		if value := at(object, "metadata", "annotations", name); value != want {
			e.Errorf("annotation %s is %v, want %q", name, value, want)
		}
	}
}

func (e *env) fails(store datastore.Store, kind error, mutation datastore.Mutation) {
	e.Helper()
	_, err := store.Write(e.within(time.Minute), datastore.Step{mutation})
	var conflict *datastore.ConflictError
	if !errors.Is(err, kind) || !errors.As(err, &conflict) || conflict.Key != mutation.Key {
		e.Errorf("writing the %s failed with %v, want: %v", mutation.Key, err, kind)
	}
}

// TestSuccessorPod: neither a late ADD nor a late DEL writes to a pod that was
// made anew under the name.
func TestSuccessorPod(t *testing.T) {
	e := newEnv(t, model.GroupV3)
	store := e.open()
	e.shop()
	e.pod()
	endpoint, revision := e.endpoint(store)
	e.pod()
	late := endpoint.Clone()
	late.Spec.ContainerID, late.Spec.IPNetworks = "3f9c", []string{"10.77.3.64/32"}
	e.fails(store, datastore.ErrNotFound, datastore.Put(endpointKey, late, revision))
	e.fails(store, datastore.ErrNotFound, datastore.Put(endpointKey, late, datastore.Absent)) // by the UID of its value
	// The server looks at the version first: the caller reads again.
	e.fails(store, datastore.ErrConflict, datastore.Remove(endpointKey, revision))
	if annotations := at(e.object(podPath+"/web-0"), "metadata", "annotations"); annotations != nil {
		t.Errorf("the successor has the annotations %v", annotations)
	}
	e.deletePod()
	e.fails(store, datastore.ErrNotFound, datastore.Put(endpointKey, late, revision))
	e.fails(store, datastore.ErrNotFound, datastore.Remove(endpointKey, revision))
	e.write(store, datastore.Step{datastore.Remove(endpointKey, datastore.Any)})
}

// TestNodeAndNamespace are read in one batch with the pod and its endpoint.
func TestNodeAndNamespace(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	store := e.open()
	e.shop()
	e.pod()
	cluster.Admin().Do(t, "POST", "/api/v1/nodes", map[string]any{
		"metadata": map[string]any{"name": "worker-b", "labels": map[string]string{"zone": "b"}, "annotations": map[string]string{"projectcalico.org/labels": `{"rack":"2","zone":"x"}`}},
		"spec":     map[string]any{"podCIDR": "10.77.3.0/24", "podCIDRs": []string{"10.77.3.0/24"}},
	})
	e.proxy.Forget()
	answers, err := store.Read(e.within(time.Minute),
		datastore.Get{Key: model.ResourceKey{Kind: model.KindNode, Name: "worker-b"}},
		datastore.Get{Key: model.ResourceKey{Kind: model.KindNamespace, Name: "shop"}},
		datastore.Get{Key: model.ResourceKey{Kind: model.KindPod, Namespace: "shop", Name: "web-0"}},
		datastore.ListResources{Kind: model.KindWorkloadEndpoint, Namespace: "shop", NamePrefix: "worker--b-k8s-web--0-"},
		datastore.Get{Key: model.ResourceKey{Kind: model.KindNode, Name: "worker-c"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	node, _ := datastore.One[model.Node](answers[0])
	namespace, _ := datastore.One[model.Namespace](answers[1])
	pod, _ := datastore.One[model.Pod](answers[2])
	if node == nil || node.Metadata.Labels["zone"] != "b" || node.Metadata.Labels["rack"] != "2" || !slices.Equal(node.PodCIDRs(), []string{"10.77.3.0/24"}) {
		t.Errorf("node %+v", node)
	}
	if namespace == nil || namespace.Metadata.Labels["team"] != "a" || namespace.Metadata.Annotations["cni.projectcalico.org/ipv4pools"] != `["pods"]` {
		t.Errorf("namespace %+v", namespace)
	}
	if pod == nil || pod.Metadata.Labels["app"] != "web" || pod.ServiceAccount != "web" || len(answers[3].Entries) != 1 || len(answers[4].Entries) != 0 {
		t.Errorf("pod %+v, endpoints %v, other node %v", pod, answers[3], answers[4])
	}
	if requests := len(e.proxy.Exchanges()); requests != 4 {
		t.Errorf("%d requests, want 4", requests)
	}
}

// TestNodeUpdate changes Calico's annotations alone. The plugins' role does not
// allow it; the account of a node agent may.
func TestNodeUpdate(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.token = kubetest.AdminToken
	store := e.open()
	cluster.Admin().Do(t, "POST", "/api/v1/nodes", map[string]any{"metadata": map[string]any{
		"name": "worker-b", "labels": map[string]string{"zone": "b"},
		"annotations": map[string]string{"example.org/kept": "1", "projectcalico.org/ASNumber": "64512", "projectcalico.org/IPv4Address": "192.0.2.12/24"},
	}})
	key := model.ResourceKey{Kind: model.KindNode, Name: "worker-b"}
	value, revision := e.get(store, key)
	node, err := value.(*model.Node).WithIPIPTunnel("10.77.3.65")
	if err != nil {
		t.Fatal(err)
	}
	if node, err = node.WithVXLANTunnel("10.77.3.66", "66:a1:00:00:00:02"); err != nil {
		t.Fatal(err)
	}
	e.write(store, datastore.Step{datastore.Put(key, node, revision)})
	object := e.object("/api/v1/nodes/worker-b")
	for name, want := range map[string]string{
		"example.org/kept": "1", "projectcalico.org/ASNumber": "64512", "projectcalico.org/IPv4Address": "192.0.2.12/24",
		"projectcalico.org/IPv4IPIPTunnelAddr": "10.77.3.65", "projectcalico.org/IPv4VXLANTunnelAddr": "10.77.3.66",
		"projectcalico.org/VXLANTunnelMACAddr": "66:a1:00:00:00:02",
	} {
		if found := at(object, "metadata", "annotations", name); found != want {
			t.Errorf("annotation %s is %v, want %q", name, found, want)
		}
	}
	if labels, _ := at(object, "metadata", "labels").(map[string]any); len(labels) != 1 {
		t.Errorf("labels %v", labels)
	}
	e.fails(store, datastore.ErrConflict, datastore.Put(key, node, revision))
	cluster.Admin().Do(t, "DELETE", "/api/v1/nodes/worker-b", nil)
	e.fails(store, datastore.ErrNotFound, datastore.Put(key, node, revision))
}

// TestPodsOfAllNamespaces: tools with more rights may list them.
func TestPodsOfAllNamespaces(t *testing.T) {
	e := newEnv(t, model.GroupV1)
	e.token = kubetest.AdminToken
	e.shop()
	e.pod()
	answers, err := e.open().Read(e.within(time.Minute), datastore.ListResources{Kind: model.KindPod}, datastore.ListResources{Kind: model.KindWorkloadEndpoint})
	if err != nil || len(answers[0].Entries) != 1 || len(answers[1].Entries) != 1 {
		t.Fatalf("%v, %v", answers, err)
	}
	if key := answers[0].Entries[0].Key; key != (model.ResourceKey{Kind: model.KindPod, Namespace: "shop", Name: "web-0"}) {
		t.Errorf("key %v", key)
	}
	if key := answers[1].Entries[0].Key; key != endpointKey {
		t.Errorf("key %v", key)
	}
}
