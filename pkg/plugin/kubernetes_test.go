package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/annotation"
	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/netconf"
)

// wantRecord checks what the pod says of its endpoint.
func (s *apiServer) wantRecord(t *testing.T, containerID, address string) {
	t.Helper()
	found := s.annotations(apiPod)
	want := object{annotatedBy + "containerID": containerID, annotatedBy + "podIP": address, annotatedBy + "podIPs": address}
	for name, value := range want {
		if found[name] != value {
			t.Errorf("annotation %s is %v, want %q", name, found[name], value)
		}
	}
}

// nothingHeld checks that no address is taken and no link left.
func (n *node) nothingHeld(s *apiServer) {
	n.t.Helper()
	if handles := s.below("ipamhandles"); len(handles) > 0 || len(n.dataplane.links) > 0 {
		n.t.Errorf("left are handles %v, links %v", handles, n.dataplane.links)
	}
}

func (n *node) delPod(conf []byte, change ...func(*invocation.Call)) error {
	return n.plugin.Del(deadline(n.t), n.call(invocation.Del, conf, append([]func(*invocation.Call){inPod}, change...)...))
}

// TestKubernetesPod: the pod is the record (datastore contract 4.11).
func TestKubernetesPod(t *testing.T) {
	t.Parallel()
	n, s := clusterNode(t)
	conf := n.cluster(s)
	first := n.mustAddPod(conf)[0] + "/32"
	s.wantRecord(t, "c1", first)
	second := n.mustAddPod(conf, container("c2"))[0] + "/32"
	if first == second {
		t.Errorf("Network/36: both sandboxes have %s", first)
	}
	// Network/44
	if err := n.delPod(conf); err != nil {
		t.Fatal(err)
	}
	s.wantRecord(t, "c2", second)
	if handles := s.below("ipamhandles"); len(handles) != 1 || !strings.HasSuffix(handles[0], "net.c2") {
		t.Errorf("handles %v", handles)
	}
	for range 2 {
		if err := n.delPod(conf, container("c2")); err != nil {
			t.Fatal(err)
		}
	}
	s.wantRecord(t, "c2", "")
	n.nothingHeld(s)
	if lists := s.requests("GET /api/v1/namespaces/shop/pods"); slices.Contains(lists, "GET /api/v1/namespaces/shop/pods") {
		t.Error("pods were listed")
	}
}

// TestKubernetesOvertaken: an ADD whose pod goes writes to no other pod.
func TestKubernetesOvertaken(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]func(*apiServer){
		"deleted":   func(s *apiServer) { s.remove(apiPod) },
		"made anew": (*apiServer).putPod,
	} {
		for kind, policy := range map[string]string{"with policy": "k8s", "without": ""} {
			n, s := clusterNode(t)
			n.dataplane.during = func() { during(s) }
			_, err := n.addPod(n.cluster(s, "policy", map[string]any{"type": policy}))
			if cnierr.CodeOf(err) != cnierr.Overtaken {
				t.Errorf("%s, %s: code %d, %v", name, kind, cnierr.CodeOf(err), err)
			}
			if found := s.annotations(apiPod); len(found) != 0 {
				t.Errorf("%s, %s: the pod has annotations %v", name, kind, found)
			}
			n.nothingHeld(s)
		}
	}
}

// TestKubernetesNoEndpoint: nothing is taken for what cannot be recorded.
func TestKubernetesNoEndpoint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec  object
		code  cnierr.Code
		words string
	}{
		"scheduled elsewhere": {object{"nodeName": "other"}, cnierr.TryAgainLater, "node worker-b"},
		"host network":        {object{"nodeName": nodeName, "hostNetwork": true}, cnierr.TryAgainLater, "host's network"},
		"not scheduled":       {object{}, cnierr.TryAgainLater, "shop/web-0"},
		"no pod":              {nil, cnierr.TryAgainLater, "does not exist"},
	} {
		n, s := clusterNode(t)
		s.remove(apiPod)
		if test.spec != nil {
			s.put(apiPod, object{"metadata": object{"name": "web-0", "namespace": "shop"}, "spec": test.spec})
		}
		_, err := n.addPod(n.cluster(s))
		if cnierr.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: code %d, %v", name, cnierr.CodeOf(err), err)
		}
		if writes := len(s.requests("P")); writes != 0 {
			t.Errorf("%s: %v", name, s.requests("P"))
		}
	}
	n, s := clusterNode(t)
	_, err := n.runAdd(n.call(invocation.Add, n.cluster(s)))
	wantCode(t, err, cnierr.InvalidEnvironment, "K8S_POD_NAME")
	n.nothingHeld(s)
}

// TestKubernetesConflicts: others change the pod between read and write.
func TestKubernetesConflicts(t *testing.T) {
	t.Parallel()
	for conflicts, want := range map[int]cnierr.Code{recordTries - 1: cnierr.Unclassified, recordTries: cnierr.TryAgainLater} {
		t.Run(fmt.Sprintf("Network/47 %d conflicts", conflicts), func(t *testing.T) {
			t.Parallel()
			n, s := clusterNode(t)
			conf := n.cluster(s)
			n.mustAddPod(conf)
			left := conflicts
			s.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPatch || left == 0 {
					return false
				}
				left--
				refuse(w, http.StatusUnprocessableEntity, "Invalid", "web-0", "metadata.resourceVersion")
				return true
			}
			err := n.delPod(conf)
			if (err != nil) != (want != cnierr.Unclassified) || cnierr.CodeOf(err) != want && err != nil {
				t.Errorf("code %d, %v", cnierr.CodeOf(err), err)
			}
			if patches := len(s.requests("PATCH")) - 1; patches != recordTries {
				t.Errorf("%d tries, want %d", patches, recordTries)
			}
			if err != nil && len(n.dataplane.links) != 1 {
				t.Error("the interface went although the record stayed")
			}
		})
	}
}

// TestKubernetesForbidden: the role of the plugins lacks something.
func TestKubernetesForbidden(t *testing.T) {
	t.Parallel()
	n, s := clusterNode(t)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		forbidden := r.Method == http.MethodPatch
		if forbidden {
			refuse(w, http.StatusForbidden, "Forbidden", "web-0", "")
		}
		return forbidden
	}
	_, err := n.addPod(n.cluster(s))
	wantCode(t, err, cnierr.DatastoreRefused, "patch pods/status")
	n.nothingHeld(s)
}

// TestKubernetesAnnotations: what reaches the datastore with Pods as records.
func TestKubernetesAnnotations(t *testing.T) {
	t.Parallel()
	n, s := clusterNode(t)
	annotate := func(name, value string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		part(part(s.objects[apiPod], "metadata"), "annotations")[name] = value
	}
	annotate(annotation.IPAddrs, `["10.77.0.9"]`)
	for _, id := range []string{"c1", "c2", "c2"} {
		n.mustAddPod(n.cluster(s), container(id))
		s.wantRecord(t, id, "10.77.0.9/32") // Network/26
	}
	if handles := s.below("ipamhandles"); len(handles) != 1 {
		t.Errorf("handles %v", handles)
	}
	annotate(annotation.HWAddr, "x")
	_, err := n.addPod(n.cluster(s), container("c3"))
	wantCode(t, err, cnierr.InvalidAnnotation, "hwAddr")
	s.wantRecord(t, "c2", "10.77.0.9/32")
}

// TestKubernetesPodCIDR: the Node of a Kubernetes datastore has the ranges.
func TestKubernetesPodCIDR(t *testing.T) {
	t.Parallel()
	n, s := clusterNode(t)
	n.install("host-local", reported)
	conf := n.cluster(s, "ipam", hostLocal("usePodCidr"))
	n.mustAddPod(conf)
	if sent := n.recorded("stdin.ADD"); !strings.Contains(sent, "10.244.1.0/24") {
		t.Errorf("Network/42: sent %s", sent)
	}
	before := len(s.requests("GET /api/v1/nodes"))
	if err := n.delPod(conf); err != nil {
		t.Fatal(err)
	}
	if asked := s.requests("GET /api/v1/nodes"); before != 1 || len(asked) != before {
		t.Errorf("Network/43: the Node was read %d times by ADD, then %d", before, len(asked)-before)
	}
}

// TestKubernetesConnection: with a kubeconfig the API server must answer, too.
func TestKubernetesConnection(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var unreachable error
	n.plugin.Open = func(context.Context, *netconf.Config, string) (connect.Connection, error) {
		return connect.Connection{Store: kept{n.store}, Version: func(context.Context) error { return unreachable }}, nil
	}
	conf := n.config("kubernetes", map[string]any{"kubeconfig": "/etc/kubeconfig"})
	if err := n.plugin.TestConnection(deadline(t), conf); err != nil {
		t.Error(err)
	}
	unreachable = errors.New("no such server")
	err := n.plugin.TestConnection(deadline(t), conf)
	wantCode(t, err, cnierr.Startup)
	if details := cnierr.Printed(err).Details; !strings.Contains(details, "no such server") {
		t.Errorf("Network/53: details %q", details)
	}
	if err := n.plugin.TestConnection(deadline(t), n.config()); err != nil {
		t.Errorf("no kubeconfig: %v", err)
	}
}

// TestKubernetesLabels: affinities that an old release wrote get their labels,
// once per boot, and never before the cluster is ready.
func TestKubernetesLabels(t *testing.T) {
	t.Parallel()
	n, s := clusterNode(t)
	affinity := crd + "/blockaffinities/" + nodeName + "-10-77-0-128-26"
	s.put(affinity, object{
		"metadata": object{"name": nodeName + "-10-77-0-128-26"},
		"spec":     object{"state": "confirmed", "node": nodeName, "type": "host", "cidr": "10.77.0.128/26", "deleted": "false"},
	})
	information := crd + "/clusterinformations/default"
	s.put(information, object{"metadata": object{"name": "default"}, "spec": object{"datastoreReady": false}})
	_, err := n.addPod(n.cluster(s))
	wantCode(t, err, cnierr.TryAgainLater, "not ready")
	if writes := s.requests("P"); len(writes) != 0 {
		t.Errorf("a cluster that is not ready was written to: %v", writes)
	}
	s.put(information, object{"metadata": object{"name": "default"}, "spec": object{"datastoreReady": true}})
	for _, id := range []string{"c1", "c2"} {
		if address := n.mustAddPod(n.cluster(s), container(id))[0]; !strings.HasPrefix(address, "10.77.0.1") {
			t.Errorf("address %s, want one of the block 10.77.0.128/26", address)
		}
	}
	if lists := s.requests("GET " + crd + "/blockaffinities?!"); len(lists) != 1 {
		t.Errorf("affinities without labels were looked for %d times", len(lists))
	}
}
