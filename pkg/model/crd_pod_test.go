package model_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"calico-cni/pkg/model"
)

func podFrom(t *testing.T, document string) *model.Pod {
	t.Helper()
	pod := &model.Pod{}
	if err := json.Unmarshal([]byte(document), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestPodAddresses is datastore contract 4.11: where they are looked for.
func TestPodAddresses(t *testing.T) {
	t.Parallel()
	const (
		podIPs   = `"cni.projectcalico.org/podIPs":"10.77.0.2/32,fd00::2/128"`
		podIP    = `"cni.projectcalico.org/podIP":"10.77.0.3/32"`
		empty    = `"cni.projectcalico.org/podIP":"","cni.projectcalico.org/podIPs":""`
		amazon   = `"vpc.amazonaws.com/pod-ips":"10.77.0.4"`
		deleting = `"deletionTimestamp":"2026-03-04T05:06:07Z",`
	)
	for name, row := range map[string]struct {
		metadata, annotations, status string
		want                          []string
	}{
		"status list":      {"", podIPs, `{"podIP":"10.77.0.1","podIPs":[{"ip":"10.77.0.0"},{"ip":"fd00::1"}]}`, []string{"10.77.0.0/32", "fd00::1/128"}},
		"status":           {"", podIPs, `{"podIP":"10.77.0.1"}`, []string{"10.77.0.1/32"}},
		"annotation list":  {"", podIPs + "," + podIP, `{}`, []string{"10.77.0.2/32", "fd00::2/128"}},
		"annotation":       {"", podIP, `{}`, []string{"10.77.0.3/32"}},
		"amazon":           {"", empty + "," + amazon, `{}`, []string{"10.77.0.4/32"}},
		"none":             {"", empty, `{}`, nil},
		"failed":           {"", podIPs, `{"phase":"Failed","podIP":"10.77.0.1"}`, nil},
		"succeeded":        {"", podIPs, `{"phase":"Succeeded"}`, nil},
		"being deleted":    {deleting, podIPs, `{"podIP":"10.77.0.1"}`, []string{"10.77.0.1/32"}},
		"deleted, its DEL": {deleting, empty, `{"podIP":"10.77.0.1"}`, nil},
		"not an address":   {"", `"cni.projectcalico.org/podIP":"x"`, `{}`, nil},
	} {
		pod := podFrom(t, fmt.Sprintf(`{"metadata":{%s"annotations":{%s}},"spec":{"nodeName":"n1"},"status":%s}`, row.metadata, row.annotations, row.status))
		if !slices.Equal(pod.Networks, row.want) {
			t.Errorf("%s: %v, want %v", name, pod.Networks, row.want)
		}
	}
}

func TestPodEndpoint(t *testing.T) {
	t.Parallel()
	pod := podFrom(t, `{"metadata":{"name":"web-0","namespace":"shop","generateName":"web-","uid":"u","labels":{"app":"web","projectcalico.org/orchestrator":"x"},
		"annotations":{"cni.projectcalico.org/containerID":"3f9c"}},
		"spec":{"nodeName":"worker-b","serviceAccountName":"web","containers":[{"ports":[{"name":"http","containerPort":8080},{"containerPort":9},
		{"containerPort":53,"hostPort":5353,"hostIP":"192.0.2.1","protocol":"UDP"}]}],"initContainers":[{"ports":[{"name":"init","containerPort":1,"protocol":"SCTP"}]}]},
		"status":{"podIP":"10.77.3.64"}}`)
	endpoint := pod.Endpoint("worker--b-k8s-web--0-eth0", "calia4fc3c48bd8")
	want := &model.WorkloadEndpoint{
		Metadata: model.Metadata{
			Name: "worker--b-k8s-web--0-eth0", GenerateName: "web-", Namespace: "shop", UID: "u",
			Labels: map[string]string{
				"app": "web", "projectcalico.org/namespace": "shop", "projectcalico.org/orchestrator": "k8s", "projectcalico.org/serviceaccount": "web",
			},
		},
		Spec: model.WorkloadEndpointSpec{
			Orchestrator: "k8s", Node: "worker-b", ContainerID: "3f9c", Pod: "web-0", Endpoint: "eth0", ServiceAccount: "web",
			IPNetworks: []string{"10.77.3.64/32"}, Profiles: []string{"kns.shop", "ksa.shop.web"}, InterfaceName: "calia4fc3c48bd8",
			Ports: []model.EndpointPort{
				{Name: "http", Protocol: "TCP", Port: 8080}, {Protocol: "UDP", Port: 53, HostPort: 5353, HostIP: "192.0.2.1"}, {Name: "init", Protocol: "SCTP", Port: 1},
			},
		},
	}
	if !reflect.DeepEqual(endpoint, want) {
		t.Errorf("endpoint %+v\nwant     %+v", endpoint, want)
	}
}

func TestPodsThatAreNoEndpoints(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]bool{
		`{}`: false, `{"nodeName":"n1"}`: true, `{"nodeName":"n1","hostNetwork":true}`: false,
	} {
		if pod := podFrom(t, `{"metadata":{"name":"a"},"spec":`+spec+`}`); pod.IsEndpoint() != want {
			t.Errorf("%s: endpoint %v, want %v", spec, pod.IsEndpoint(), want)
		}
	}
}

// TestClusterObjectsHaveKeys: they are read through any engine.
func TestClusterObjectsHaveKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []model.ResourceKey{
		{Kind: model.KindNamespace, Name: "shop"}, {Kind: model.KindPod, Namespace: "shop", Name: "web-0"},
	} {
		if parsed, ok := model.ParsePath(key.Path()); !ok || parsed != key {
			t.Errorf("%s: parsed %v, %v", key.Path(), parsed, ok)
		}
	}
	value, err := model.Decode(model.ResourceKey{Kind: model.KindNamespace, Name: "shop"}, []byte(`{"metadata":{"name":"shop","labels":{"a":"b"},"managedFields":[]}}`))
	if namespace, ok := value.(*model.Namespace); err != nil || !ok || namespace.Metadata.Labels["a"] != "b" {
		t.Errorf("%+v, %v", value, err)
	}
}
