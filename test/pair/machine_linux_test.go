//go:build kubernetes

package pair

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"calico-cni/test/etcdtest"
	"calico-cni/test/kubetest"
)

const shopMachines = "/apis/kubevirt.io/v1/namespaces/shop/"

// newMachine makes the virtual machine vm1 and the pods that it runs in and is
// about to move to.
func newMachine(t *testing.T, c *kubetest.Cluster) (source, target string) {
	t.Helper()
	controller := func(kind, uid string) []any {
		return []any{map[string]any{"apiVersion": "kubevirt.io/v1", "kind": kind, "name": "vm1", "uid": uid, "controller": true}}
	}
	create := func(path string, object map[string]any) (uid string) {
		t.Helper()
		metadata, _ := c.Admin().Do(t, "POST", path, object)["metadata"].(map[string]any)
		return fmt.Sprint(metadata["uid"])
	}
	machine := create(shopMachines+"virtualmachines", map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": map[string]any{"name": "vm1"}})
	instance := create(shopMachines+"virtualmachineinstances", map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
		"metadata": map[string]any{"name": "vm1", "ownerReferences": controller("VirtualMachine", machine)}})
	names := []string{"virt-launcher-vm1-aaaaa", "virt-launcher-vm1-bbbbb"}
	for i, name := range names {
		metadata := map[string]any{"name": name, "ownerReferences": controller("VirtualMachineInstance", instance)}
		if i == 1 {
			metadata["labels"] = map[string]any{"kubevirt.io/migrationJobUID": "j1"}
		}
		create(shopPods, map[string]any{"metadata": metadata, "spec": map[string]any{
			"nodeName": "node-1", "containers": []any{map[string]any{"name": "compute", "image": "none"}},
		}})
	}
	t.Cleanup(func() {
		c.Wipe(t, shopMachines+"virtualmachines", shopMachines+"virtualmachineinstances")
		for _, name := range names {
			c.Admin().Do(t, "DELETE", shopPods+"/"+name+"?gracePeriodSeconds=0", nil)
		}
	})
	return "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + names[0], "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + names[1]
}

// addBothWays runs ADD, with calico-ipam in the same process and then, after a
// DEL, executed. What is printed must be the same.
func (h *host) addBothWays(t *testing.T, p *pod, conf config, foreign string) result {
	t.Helper()
	mine := h.run(t, p.verb(t, "ADD", conf))
	h.run(t, p.check(t, conf, mine)).succeeds(t)
	h.del(t, p, conf)
	executed := h.run(t, p.verb(t, "ADD", conf).with("CNI_PATH="+foreign))
	h.run(t, p.check(t, conf, executed).with("CNI_PATH="+foreign)).succeeds(t)
	if a, b := macs.ReplaceAllString(mine.stdout, "MAC"), macs.ReplaceAllString(executed.stdout, "MAC"); a != b || mine.status != executed.status {
		t.Errorf("in the same process:\n%s\nexecuted:\n%s", a, b)
	}
	return executed.result(t)
}

// TestKubernetesMachine runs the executables for the pods of a virtual machine:
// with either datastore, and with calico-ipam in the same process and executed.
// What they print is the same, byte for byte.
func TestKubernetesMachine(t *testing.T) {
	c := newKubernetes(t)
	if err := c.Apply("test/kubernetes/testdata/kubevirt.yaml"); err != nil {
		t.Fatal(err)
	}
	foreign := stranger(t)
	for _, engine := range []string{"kubernetes", "etcd"} {
		t.Run(engine, func(t *testing.T) {
			s, proxy := kubernetesScene(t, c)
			h, conf := s.host, s.c
			if engine == "etcd" {
				h, conf = newEtcdHost(t, etcdtest.Options{}, cluster(pool4, pool6))
				conf = conf.with("kubernetes.kubeconfig", kubetest.Kubeconfig(t, h.proxied(t, proxy.URL), proxy.CAFile, c.AccountToken(t, "kube-system", "calico-cni-plugin")))
			}
			conf = conf.with("ipam.assign_ipv6", "false")
			ofSource, ofTarget := newMachine(t, c)
			source, target := newPod(t, sandboxA, ofSource), newPod(t, sandboxB, ofTarget)
			first := h.add(t, source, conf)
			h.reaches(t, first.addresses()[0])
			if moved := h.addBothWays(t, target, conf, foreign); !slices.Equal(moved.addresses(), first.addresses()) || len(moved.Routes) != 0 {
				t.Errorf("the target has %+v, the source %v", moved, first.addresses())
			}
			h.reaches(t, first.addresses()[0]) // the host's route still leads to it
			h.run(t, target.verb(t, "DEL", conf).with("CNI_PATH="+foreign)).succeeds(t)
			h.del(t, source, conf)
			if again := h.addBothWays(t, source, conf, foreign); !slices.Equal(again.addresses(), first.addresses()) || len(again.Routes) != 1 {
				t.Errorf("the next sandbox has %+v, the first one %v", again, first.addresses())
			}
			asked := 0
			for _, exchange := range proxy.Exchanges() {
				if strings.Contains(exchange.Path, "/virtualmachineinstances/vm1") {
					asked++
				}
			}
			// 5 ADDs, 4 DELs; CHECK does not ask.
			if asked != 9 {
				t.Errorf("the instance was read %d times, want 9", asked)
			}
			c.Admin().Do(t, "DELETE", shopMachines+"virtualmachines/vm1", nil)
			h.run(t, source.verb(t, "DEL", conf).with("CNI_PATH="+foreign)).succeeds(t)
			h.nothingLeft(t)
		})
	}
}
