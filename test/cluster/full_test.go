//go:build kubernetes && kubernetesfull && linux

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"calico-cni/test/cluster/node"
	"calico-cni/test/kubetest"
)

// programs are those of Kubernetes that the tests run.
var programs = []string{"kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy"}

const (
	serviceAddress = "10.96.0.77"
	deployments    = "/apis/apps/v1/namespaces/" + namespace + "/deployments"
	services       = "/api/v1/namespaces/" + namespace + "/services"
)

// control runs a program of the control plane until the test ends.
func (s *scene) control(name string, arguments ...string) {
	s.Helper()
	var output bytes.Buffer
	command := exec.Command(shared.built.program(name), arguments...)
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = command.Process.Kill() // fails if it is gone, which is fine
		_ = command.Wait()         // killed
		if s.Failed() {
			lines := strings.Split(output.String(), "\n")
			s.Logf("%s said:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	})
}

// newFullCluster is a cluster with everything that an ordinary one has. The
// installer's pods are the DaemonSet controller's.
func newFullCluster(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	kubeconfig := kubetest.Kubeconfig(t, shared.URL, shared.CAFile, kubetest.AdminToken)
	certificates := t.TempDir()
	s.control("kube-controller-manager", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--allocate-node-cidrs=false",
		"--root-ca-file="+shared.CAFile, "--secure-port=0", "--cert-dir="+certificates)
	s.control("kube-scheduler", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0", "--cert-dir="+certificates)
	for i, n := range s.nodes {
		s.startKubelet(i)
		n.StartProxy(t, shared.InlineKubeconfig(t, kubetest.AdminToken), "10.77.0.0/20")
	}
	s.nodesReady()
	return s
}

// deploy makes a deployment of servers and its service.
func (s *scene) deploy(replicas int) {
	s.Helper()
	template := podOn("", "")
	spec := template["spec"].(object)
	delete(spec, "nodeName")
	spec["containers"].([]object)[0]["readinessProbe"] = object{"tcpSocket": object{"port": 80}, "periodSeconds": 1}
	labels := object{"app": "web"}
	s.object(deployments, object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "web"},
		"spec": object{
			"replicas": replicas, "selector": object{"matchLabels": labels},
			"template": object{"metadata": object{"labels": labels}, "spec": spec},
		},
	})
	s.object(services, object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "web"},
		"spec": object{"clusterIP": serviceAddress, "selector": labels, "ports": []object{{"port": 80, "targetPort": 80}}},
	})
}

// replicas waits until a number of the deployment's pods are ready, and no more
// are there, and returns the nodes that they are on.
func (s *scene) replicas(count int) map[string]string {
	s.Helper()
	var on map[string]string
	s.until(fmt.Sprintf("waiting for %d replicas", count), func() error {
		on = map[string]string{}
		for _, pod := range s.list(pods + "?labelSelector=app%3Dweb") {
			if err := condition(pod, "Ready"); err != nil {
				return err
			}
			on[nameOf(pod)] = fmt.Sprint(at(pod, "spec", "nodeName"))
		}
		if len(on) != count {
			return fmt.Errorf("%d pods", len(on))
		}
		return nil
	})
	return on
}

// answered waits until every pod of a deployment has answered a client by the
// address of the service.
func (s *scene) answered(from *node.Runtime, client string, replicas map[string]string) {
	s.Helper()
	missing := map[string]bool{}
	for name := range replicas {
		missing[name] = true
	}
	s.until("waiting for the service's pods to answer "+client, func() error {
		answer, err := from.Exec(s.Context(), client, "connect", serviceAddress+":80")
		if err != nil {
			return err
		}
		if name := strings.TrimSpace(answer); replicas[name] == "" {
			return fmt.Errorf("%q answers, which is none of %v", name, replicas)
		} else if delete(missing, name); len(missing) > 0 {
			return fmt.Errorf("%v have not answered", missing)
		}
		return nil
	})
	s.Logf("%s gets answers of %s from %v", client, serviceAddress, replicas)
}

// TestFull: a deployment behind a ClusterIP, reached from both nodes, in a
// cluster with scheduler, controller manager and kube-proxy.
func TestFull(t *testing.T) {
	const count = 4
	s := newFullCluster(t)
	s.createPod("client-1", s.nodes[0].Name)
	s.createPod("client-2", s.nodes[1].Name)
	s.running("client-1", "client-2")
	s.deploy(count)
	replicas := s.replicas(count)
	for _, n := range s.nodes {
		if !slices.Contains(slices.Collect(maps.Values(replicas)), n.Name) {
			t.Errorf("no replica on %s: %v", n.Name, replicas)
		}
	}
	s.route()
	s.answered(s.runtimes[0], "client-1", replicas)
	s.answered(s.runtimes[1], "client-2", replicas)
	s.holds()

	for name := range replicas {
		shared.Admin().Do(t, http.MethodDelete, pods+"/"+name, nil)
		s.until("waiting for "+name+" to be replaced", func() error {
			if _, err := get(shared.Admin(), pods+"/"+name); err == nil {
				return errors.New("it is there still")
			}
			return nil
		})
		break
	}
	replicas = s.replicas(count)
	s.route()
	s.answered(s.runtimes[0], "client-1", replicas)
	s.answered(s.runtimes[1], "client-2", replicas)
	s.holdsSoon()
	for _, n := range s.nodes {
		s.show(n)
	}

	shared.Admin().Do(t, http.MethodDelete, deployments+"/web", object{"propagationPolicy": "Background"})
	shared.Admin().Do(t, http.MethodDelete, services+"/web", nil)
	s.replicas(0)
	s.delete("client-1", "client-2")
	s.holdsSoon()
	s.live(0)
}

// show tells what an administrator would look at.
func (s *scene) show(n *node.Node) {
	s.Helper()
	object := shared.Admin().Do(s, http.MethodGet, "/api/v1/nodes/"+n.Name, nil)
	s.Logf("%s: kubelet %v, %v, kube-proxy with iptables", n.Name,
		at(object, "status", "nodeInfo", "kubeletVersion"), at(object, "status", "nodeInfo", "containerRuntimeVersion"))
	for _, command := range [][]string{
		{"/opt/cni/bin/calico-ipam", "show", "--show-blocks"}, {"ip", "route"}, {"ip", "-br", "link", "show", "type", "veth"},
	} {
		output, err := n.Run(command...)
		if err != nil {
			s.Error(err)
		}
		s.Logf("%s# %s\n%s", n.Name, strings.Join(command, " "), output)
	}
}
