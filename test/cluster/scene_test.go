//go:build kubernetes && linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"calico-cni/test/cluster/node"
	"calico-cni/test/kubetest"
)

const (
	crds      = "/apis/crd.projectcalico.org/v1/"
	namespace = "shop"
	pods      = "/api/v1/namespaces/" + namespace + "/pods"

	patience = 3 * time.Minute
	askAgain = 100 * time.Millisecond
)

// scene is a test with its own nodes on the emptied cluster.
type scene struct {
	*testing.T
	nodes []*node.Node
	// runtimes are the nodes' containerds, in the same order.
	runtimes []*node.Runtime
	// faulty is set by tests in which calls of the plugins have to fail.
	faulty bool
}

// newScene makes two nodes with containerd, on a cluster with nothing but its
// pools.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t}
	s.wipe()
	t.Cleanup(s.wipe)
	s.object("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": namespace}})
	if err := shared.authority(namespace); err != nil {
		t.Fatal(err)
	}
	s.custom("clusterinformations", "ClusterInformation", "default", map[string]any{"datastoreReady": true})
	s.custom("ippools", "IPPool", "pool4", map[string]any{"cidr": "10.77.0.0/20", "blockSize": 26})
	s.custom("ippools", "IPPool", "pool6", map[string]any{"cidr": "fd00:77::/112", "blockSize": 122})
	for _, name := range nodeNames {
		n := node.New(t, name, shared.cgroup, nodePrograms()...)
		s.nodes = append(s.nodes, n)
		s.runtimes = append(s.runtimes, n.StartContainerd(t, shared.built.archives()...))
	}
	t.Cleanup(s.noErrors) // while the nodes are there still
	return s
}

// pluginLog is where the plugins write on a node.
const pluginLog = "/var/log/calico/cni/cni.log"

// errorsOf are the errors in the log of a node's plugins.
func (s *scene) errorsOf(n *node.Node) []string {
	s.Helper()
	log, err := os.ReadFile(n.File(pluginLog))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "level=ERROR") {
			found = append(found, line)
		}
	}
	return found
}

// noErrors checks that no call of a plugin has failed: not even one that its
// kubelet repeated with success, as a right that the role of deploy/ lacks.
func (s *scene) noErrors() {
	s.Helper()
	for _, n := range s.nodes {
		if found := s.errorsOf(n); len(found) > 0 && !s.faulty {
			s.Errorf("the plugins on %s failed %d times, at first: %s", n.Name, len(found), found[0])
		}
	}
}

// nodePrograms are the programs of Kubernetes that run on nodes.
func nodePrograms() []string {
	var paths []string
	for _, name := range programs {
		if name == "kubelet" || name == "kube-proxy" {
			paths = append(paths, shared.built.program(name))
		}
	}
	return paths
}

// object creates an object, which may exist.
func (s *scene) object(path string, object map[string]any) {
	s.Helper()
	if err := post(shared.Admin(), path, object); err != nil {
		s.Fatal(err)
	}
}

func post(client *kubetest.Client, path string, object map[string]any) error {
	_, err := client.Try(http.MethodPost, path, object)
	var answer *kubetest.AnswerError
	if err != nil && (!errors.As(err, &answer) || answer.Status != http.StatusConflict) {
		return fmt.Errorf("POST %s: %w", path, err)
	}
	return nil
}

// get reads an object that may be missing, from a server that may be down.
func get(client *kubetest.Client, path string) (object, error) {
	answer, err := client.Try(http.MethodGet, path, nil)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	var o object
	return o, json.Unmarshal(answer, &o)
}

func (s *scene) custom(plural, kind, name string, spec map[string]any) {
	s.Helper()
	s.object(crds+plural, map[string]any{
		"apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	})
}

// wipe deletes what tests leave on the API server.
func (s *scene) wipe() {
	s.Helper()
	for _, folder := range []string{pods, installers} {
		for _, pod := range s.list(folder) {
			s.deleteNow(folder + "/" + nameOf(pod))
		}
	}
	for _, plural := range []string{"ipamblocks", "blockaffinities", "ipamhandles", "ippools"} {
		shared.Wipe(s, crds+plural)
	}
	shared.Wipe(s, "/api/v1/nodes")
}

// deleteNow deletes a pod without waiting for its kubelet.
func (s *scene) deleteNow(path string) {
	s.Helper()
	_, err := shared.Admin().Try(http.MethodDelete, path+"?gracePeriodSeconds=0", nil)
	var answer *kubetest.AnswerError
	if err != nil && (!errors.As(err, &answer) || answer.Status != http.StatusNotFound) {
		s.Fatalf("DELETE %s: %v", path, err)
	}
}

// object is an object of the API server.
type object = map[string]any

func (s *scene) list(path string) []object {
	s.Helper()
	answer := shared.Admin().Do(s, http.MethodGet, path, nil)
	items, _ := answer["items"].([]any)
	var found []object
	for _, item := range items {
		found = append(found, item.(object))
	}
	return found
}

// at returns a value inside an object, or nil.
func at(o object, path ...string) any {
	var value any = o
	for _, key := range path {
		inner, _ := value.(object)
		value = inner[key]
	}
	return value
}

// recorded are the addresses that the plugin wrote on a pod.
func recorded(pod object) []string {
	var found []string
	text, _ := at(pod, "metadata", "annotations", "cni.projectcalico.org/podIPs").(string)
	for _, address := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		bare, _, _ := strings.Cut(address, "/")
		found = append(found, bare)
	}
	return found
}

func nameOf(o object) string { return fmt.Sprint(at(o, "metadata", "name")) }

// until asks until there is no error; it fails with the last one.
func (s *scene) until(what string, ask func() error) {
	s.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = ask(); err == nil {
			return
		}
		select {
		case <-s.Context().Done():
			s.Fatal(s.Context().Err())
		case <-time.After(askAgain):
		}
	}
	s.Fatalf("%s: %v after %v", what, err, patience)
}

// createPod creates a pod on a node, which serves its name on port 80.
func (s *scene) createPod(name, nodeName string) {
	s.Helper()
	s.object(pods, podOn(name, nodeName))
}

func podOn(name, nodeName string) object {
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "namespace": namespace},
		"spec": object{
			"nodeName": nodeName, "terminationGracePeriodSeconds": 1,
			"automountServiceAccountToken": false, "enableServiceLinks": false,
			"containers": []object{{
				"name": "serve", "image": node.Image, "imagePullPolicy": "Never", "command": []string{node.Workload, "serve", "80"},
			}},
		},
	}
}

// reaches checks that a pod gets an echo from every address.
func (s *scene) reaches(from *node.Runtime, pod string, addresses ...string) {
	s.Helper()
	if _, err := from.Exec(context.Background(), pod, append([]string{"ping"}, addresses...)...); err != nil {
		s.Errorf("from %s: %v", pod, err)
	}
}

// serves checks that a pod gets the answer of another from its addresses.
func (s *scene) serves(from *node.Runtime, pod, other string, addresses ...string) {
	s.Helper()
	for _, address := range addresses {
		if err := s.asks(from, pod, other, net.JoinHostPort(address, "80")); err != nil {
			s.Error(err)
		}
	}
}

// asks returns why a pod does not get the answer of another from an address
// with a port.
func (s *scene) asks(from *node.Runtime, pod, other, address string) error {
	answer, err := from.Exec(context.Background(), pod, "connect", address)
	if err == nil && strings.TrimSpace(answer) != other {
		err = fmt.Errorf("%s answers %q to %s, want %q", address, answer, pod, other)
	}
	return err
}
