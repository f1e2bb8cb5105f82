//go:build kubernetes

package pair

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/test/etcdtest"
	"calico-cni/test/kubetest"
)

// richPod is a pod of a set, with everything that an endpoint takes from one.
var richPod = map[string]any{
	"metadata": map[string]any{"name": "rich-0", "generateName": "rich-", "labels": map[string]any{"app": "rich"}},
	"spec": map[string]any{
		"nodeName": "node-1", "serviceAccountName": "web",
		"initContainers": []any{map[string]any{"name": "first", "image": "none", "ports": []any{
			map[string]any{"name": "setup", "containerPort": 7000, "protocol": "UDP"},
		}}},
		"containers": []any{map[string]any{"name": "web", "image": "none", "ports": []any{
			map[string]any{"name": "http", "containerPort": 8080}, map[string]any{"containerPort": 9090, "hostPort": 9091, "hostIP": "192.0.2.1"},
			map[string]any{"containerPort": 9999},
		}}},
	},
}

// TestKubernetesRecord: what the endpoint in etcd takes from a real pod.
func TestKubernetesRecord(t *testing.T) {
	c := newKubernetes(t)
	_, proxy := kubernetesScene(t, c)
	c.Admin().Do(t, "POST", shopPods, richPod)
	h, conf := newEtcdHost(t, etcdtest.Options{}, cluster(pool4, pool6))
	conf = conf.with("policy.type", "k8s").
		with("kubernetes.kubeconfig", kubetest.Kubeconfig(t, h.proxied(t, proxy.URL), proxy.CAFile, c.AccountToken(t, "kube-system", "calico-cni-plugin")))
	p := newPod(t, sandboxA, "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=rich-0;K8S_POD_INFRA_CONTAINER_ID=infra")
	r := h.add(t, p, conf)
	h.works(t, p, r)
	var record struct {
		Metadata struct {
			GenerateName string            `json:"generateName"`
			Labels       map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			Profiles []string         `json:"profiles"`
			Ports    []map[string]any `json:"ports"`
		} `json:"spec"`
	}
	text := h.objects(t)[resourceRoot+"workloadendpoints/shop/node--1-k8s-rich--0-eth0"]
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	labels := map[string]string{"app": "rich", "projectcalico.org/namespace": "shop", "projectcalico.org/orchestrator": "k8s", "projectcalico.org/serviceaccount": "web"}
	if record.Metadata.GenerateName != "rich-" || !reflect.DeepEqual(record.Metadata.Labels, labels) {
		t.Errorf("Network/32: metadata %+v", record.Metadata)
	}
	if strings.Join(record.Spec.Profiles, " ") != "kns.shop ksa.shop.web" {
		t.Errorf("Network/32: profiles %v", record.Spec.Profiles)
	}
	var ports []string
	for _, port := range record.Spec.Ports {
		var fields []string
		for _, name := range []string{"name", "protocol", "port", "hostPort", "hostIP"} {
			value, err := json.Marshal(port[name])
			if err != nil {
				t.Fatal(err)
			}
			fields = append(fields, string(value))
		}
		ports = append(ports, strings.Join(fields, " "))
	}
	want := []string{`"http" "TCP" 8080 0 ""`, `null "TCP" 9090 9091 "192.0.2.1"`, `"setup" "UDP" 7000 0 ""`}
	if !reflect.DeepEqual(ports, want) {
		t.Errorf("Network/32: ports %q, want %q", ports, want)
	}
	h.del(t, p, conf)
	h.nothingLeft(t)
}

// TestKubernetesPolicyWait: ADD waits for the policy agent, which hears of the
// pod by the record and says so with a file.
func TestKubernetesPolicyWait(t *testing.T) {
	c := newKubernetes(t)
	s, proxy := kubernetesScene(t, c)
	const directory = "/var/run/calico/endpoint-status"
	agent := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(w, r)
		if r.Method == http.MethodPatch {
			s.write(t, filepath.Join(directory, "k8s shop%2Fweb-0 eth0"), "")
		}
	}
	const warning = "the policy agent has not said"
	t.Run("Network/51 until the agent's file is there", func(t *testing.T) {
		p, began := s.pod(t, sandboxA), time.Now()
		proxy.Hook(agent)
		o := s.run(t, p.verb(t, "ADD", s.c.with("policy_setup_timeout_seconds", 120))).succeeds(t)
		proxy.Hook(nil)
		if took := time.Since(began); took > 100*time.Second || strings.Contains(o.stderr, warning) {
			t.Errorf("ADD took %v; log:\n%s", took, o.stderr)
		}
		s.works(t, p, o.result(t))
		s.del(t, p, s.c)
	})
	t.Run("Network/51 in vain is only a warning", func(t *testing.T) {
		if err := os.RemoveAll(s.file(directory)); err != nil {
			t.Fatal(err)
		}
		p, began := s.pod(t, sandboxB), time.Now()
		o := s.run(t, p.verb(t, "ADD", s.c.with("policy_setup_timeout_seconds", 1))).succeeds(t)
		if took := time.Since(began); took < time.Second || !strings.Contains(o.stderr, warning) {
			t.Errorf("ADD took %v; log:\n%s", took, o.stderr)
		}
		s.works(t, p, o.result(t))
		s.del(t, p, s.c)
	})
	t.Run("Network/51 negative", func(t *testing.T) {
		p := s.pod(t, sandboxA)
		before := s.state(t)
		s.run(t, p.verb(t, "ADD", s.c.with("policy_setup_timeout_seconds", -1))).fails(t, cnierr.InvalidConfiguration, "policy_setup_timeout_seconds")
		s.unchanged(t, before)
	})
	s.nothingLeft(t)
}
