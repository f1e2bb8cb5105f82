//go:build kubernetes

package pair

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/test/etcdtest"
	"calico-cni/test/kubetest"
)

const (
	crds     = "/apis/crd.projectcalico.org/v1/"
	shopPods = "/api/v1/namespaces/shop/pods"
)

// allocationPlurals are the kinds in which addresses are recorded.
var allocationPlurals = []string{"ipamblocks", "blockaffinities", "ipamhandles"}

// measured prints a number for whoever runs the tests, whether they pass or not.
func measured(format string, values ...any) { fmt.Printf("measured: "+format+"\n", values...) }

// newKubernetes is a real API server with a node, pools and a namespace. The
// tests take turns with it, and each begins without addresses.
func newKubernetes(t *testing.T) *kubetest.Cluster {
	t.Helper()
	c := kubetest.Start(t, "deploy/crds-v1.yaml", "deploy/rbac.yaml")
	create := func(path string, object map[string]any) { c.Admin().Do(t, "POST", path, object) }
	named := func(name string) map[string]any { return map[string]any{"name": name} }
	create("/api/v1/namespaces", map[string]any{"metadata": named("shop")})
	create("/api/v1/nodes", map[string]any{"metadata": named("node-1")})
	custom := func(plural, kind, name string, spec map[string]any) {
		create(crds+plural, map[string]any{"apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": named(name), "spec": spec})
	}
	custom("clusterinformations", "ClusterInformation", "default", map[string]any{"datastoreReady": true})
	c.Admin().Do(t, "PATCH", "/api/v1/nodes/node-1", map[string]any{"spec": map[string]any{
		"podCIDR": "10.244.1.0/24", "podCIDRs": []string{"10.244.1.0/24", "fd00:244:1::/64"},
	}})
	custom("ippools", "IPPool", "pool4", map[string]any{"cidr": "10.77.0.0/24", "blockSize": 26})
	custom("ippools", "IPPool", "pool6", map[string]any{"cidr": "fd00:77::/112", "blockSize": 122})
	return c
}

// kubernetesScene is a host on an empty cluster with two pods.
func kubernetesScene(t *testing.T, c *kubetest.Cluster) (*scene, *kubetest.Proxy) {
	t.Helper()
	for _, plural := range allocationPlurals {
		c.Wipe(t, crds+plural)
	}
	for _, name := range []string{"web-0", "web-1"} {
		_, _ = c.Admin().Try("DELETE", shopPods+"/"+name+"?gracePeriodSeconds=0", nil) // the first time there is none
		c.Admin().Do(t, "POST", shopPods, map[string]any{
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"nodeName": "node-1", "serviceAccountName": "web", "containers": []any{map[string]any{"name": "web", "image": "none"}}},
		})
	}
	h := newHost(t)
	h.setSysctl(t, "/proc/sys/net/ipv4/ip_forward", "1")
	h.setSysctl(t, "/proc/sys/net/ipv6/conf/all/forwarding", "1")
	h.read = func(t *testing.T) objects { return kubernetesObjects(t, c) }
	proxy := c.NewProxy(t)
	kubeconfig := kubetest.Kubeconfig(t, h.proxied(t, proxy.URL), proxy.CAFile, c.AccountToken(t, "kube-system", "calico-cni-plugin"))
	conf := newConfig().without("pools").with("datastore_type", "kubernetes").with("calico_api_group", "crd.projectcalico.org/v1").
		with("kubernetes.kubeconfig", kubeconfig).with("policy.type", "k8s")
	return &scene{host: h, identity: identities[1], c: conf}, proxy
}

// kubernetesObjects reads the cluster in the keys and values of etcd.
func kubernetesObjects(t *testing.T, c *kubetest.Cluster) objects {
	t.Helper()
	found := objects{}
	list := func(path string, each func(item map[string]any)) {
		items, _ := c.Admin().Do(t, "GET", path, nil)["items"].([]any)
		for _, item := range items {
			each(item.(map[string]any))
		}
	}
	put := func(key string, value any) {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		found[key] = string(text)
	}
	list(crds+"ipamblocks", func(block map[string]any) {
		spec := block["spec"].(map[string]any)
		put("/calico/ipam/v2/assignment/"+fmt.Sprint(spec["cidr"]), spec)
	})
	list(crds+"blockaffinities", func(affinity map[string]any) {
		spec := affinity["spec"].(map[string]any)
		block := strings.Replace(fmt.Sprint(spec["cidr"]), "/", "-", 1)
		put(fmt.Sprintf("/calico/ipam/v2/%v/%v/block/%s", spec["type"], spec["node"], block), spec)
	})
	list(crds+"ipamhandles", func(handle map[string]any) {
		spec := handle["spec"].(map[string]any)
		put("/calico/ipam/v2/handle/"+fmt.Sprint(spec["handleID"]), spec)
	})
	list(shopPods, func(pod map[string]any) {
		metadata := pod["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		addresses := fmt.Sprint(annotations["cni.projectcalico.org/podIPs"])
		if annotations["cni.projectcalico.org/podIP"] == nil || addresses == "" {
			return
		}
		put(resourceRoot+"workloadendpoints/shop/"+fmt.Sprint(metadata["name"]), map[string]any{"spec": map[string]any{
			"containerID": annotations["cni.projectcalico.org/containerID"], "ipNetworks": strings.Split(addresses, ","),
		}})
	})
	return found
}

// stopAtRecordWrite keeps back the first write of a pod. The sequences stop at
// the lock of the embedded datastore; here the proxy sees the write itself.
func stopAtRecordWrite(proxy *kubetest.Proxy) (reached <-chan struct{}, proceed func()) {
	at, on := make(chan struct{}), make(chan struct{})
	var stopped atomic.Bool
	proxy.Hook(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPatch && stopped.CompareAndSwap(false, true) {
			close(at)
			<-on
		}
		next.ServeHTTP(w, r)
	})
	return at, func() { close(on) }
}

// TestKubernetesSequences runs the executables on the kernel against a real API
// server, as the role of deploy/ allows, with real pods.
func TestKubernetesSequences(t *testing.T) {
	c := newKubernetes(t)
	for _, s := range sequences {
		t.Run("Linux/36/"+s.name, func(t *testing.T) {
			scene, proxy := kubernetesScene(t, c)
			s.run(t, scene)
			for _, exchange := range proxy.Exchanges() {
				if exchange.Status == http.StatusForbidden {
					t.Errorf("the role of deploy/ does not suffice: %s", exchange)
				}
			}
		})
	}
	t.Run("ADD stopped at the write of its record", func(t *testing.T) {
		s, proxy := kubernetesScene(t, c)
		a, b := s.pod(t, sandboxA), s.pod(t, sandboxB)
		reached, proceed := stopAtRecordWrite(proxy)
		adding := s.start(t, a.verb(t, "ADD", s.c))
		<-reached
		second := s.add(t, b, s.c)
		proceed()
		// A pod is written without a look at its version, since a kubelet runs
		// one ADD of a pod at a time (datastore contract 4.11): the server takes
		// both writes. What counts is that the interface stays.
		adding.wait(t)
		s.works(t, b, second)
		s.del(t, a, s.c)
		s.works(t, b, second)
	})
}

// TestKubernetesPod is a pod with wishes, from STATUS to GC.
func TestKubernetesPod(t *testing.T) {
	c := newKubernetes(t)
	s, _ := kubernetesScene(t, c)
	c.Admin().Do(t, "PATCH", shopPods+"/web-0", map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		"cni.projectcalico.org/ipAddrs": `["10.77.0.9","fd00:77::9"]`, "cni.projectcalico.org/hwAddr": "02:00:00:00:00:09",
	}}})
	s.run(t, hostVerb(t, "STATUS", s.c)).succeeds(t)
	p := s.pod(t, sandboxA)
	added := s.run(t, p.verb(t, "ADD", s.c))
	r := added.result(t)
	if !slices.Equal(r.addresses(), []string{"10.77.0.9", "fd00:77::9"}) || r.Interfaces[1].Mac != "02:00:00:00:00:09" {
		t.Errorf("Network/25 Network/30: result %+v", r)
	}
	s.works(t, p, r)
	s.recordOf(t, p, r)
	s.run(t, p.check(t, s.c, added)).succeeds(t)
	// Network/26: a new sandbox takes the addresses over.
	successor := s.pod(t, sandboxB)
	r = s.add(t, successor, s.c)
	s.works(t, successor, r)
	s.recordOf(t, successor, r)
	s.del(t, p, s.c)
	s.works(t, successor, r)
	s.run(t, hostVerb(t, "GC", s.c.gcKey(validKey, attachments(successor.container, "eth0")))).succeeds(t)
	s.works(t, successor, r)
	s.run(t, hostVerb(t, "GC", s.c.gcKey(validKey, attachments()))).succeeds(t)
	s.nothingLeft(t)
	bad := s.c.with("kubernetes.kubeconfig", filepath.Join(t.TempDir(), "none"))
	s.run(t, p.verb(t, "ADD", bad)).fails(t, cnierr.DatastoreRefused, "kubeconfig")
}

// TestKubernetesHostLocal: upstream's host-local gives addresses of the node's
// pod CIDRs, and frees them without asking for the node.
func TestKubernetesHostLocal(t *testing.T) {
	c := newKubernetes(t)
	s, proxy := kubernetesScene(t, c)
	for name, test := range map[string]struct {
		subnets []string
		want    []string
	}{
		"Network/42 IPv4":       {[]string{"usePodCidr"}, []string{"10.244.1.2"}},
		"Network/42 IPv6":       {[]string{"UsePodCidrIPv6"}, []string{"fd00:244:1::2"}},
		"Network/42 both":       {[]string{"usePodCidr", "usePodCidrIPv6"}, []string{"10.244.1.2", "fd00:244:1::2"}},
		"Network/42 and others": {[]string{"usePodCidr", "fd00:88::/112"}, []string{"10.244.1.2", "fd00:88::2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var ranges []any
			for _, subnet := range test.subnets {
				ranges = append(ranges, []any{map[string]any{"subnet": subnet}})
			}
			conf := s.c.with("ipam", map[string]any{"type": "host-local", "ranges": ranges, "dataDir": filepath.Join("/run", strings.ReplaceAll(name, "/", " "))})
			p := s.pod(t, sandboxA)
			added := s.run(t, p.verb(t, "ADD", conf))
			r := added.result(t)
			if !slices.Equal(r.addresses(), test.want) {
				t.Errorf("addresses %v, want %v", r.addresses(), test.want)
			}
			for _, address := range r.addresses() {
				s.reaches(t, address)
			}
			s.recordOf(t, p, r)
			s.run(t, p.check(t, conf, added)).succeeds(t)
			proxy.Forget()
			s.del(t, p, conf)
			for _, exchange := range proxy.Exchanges() {
				if strings.HasPrefix(exchange.Path, "/api/v1/nodes") {
					t.Errorf("Network/43: DEL sent %s", exchange)
				}
			}
			s.nothingLeft(t)
		})
	}
}

// TestKubernetesWithEtcd: pods of Kubernetes, recorded in etcd.
func TestKubernetesWithEtcd(t *testing.T) {
	c := newKubernetes(t)
	beside, proxy := kubernetesScene(t, c)
	c.Admin().Do(t, "PATCH", shopPods+"/web-0", map[string]any{"metadata": map[string]any{
		"labels": map[string]any{"app": "web"}, "annotations": map[string]any{
			"cni.projectcalico.org/floatingIPs": `["192.0.2.77"]`, "cni.projectcalico.org/allowedSourcePrefixes": `["10.1.2.3/24"]`,
			"cni.projectcalico.org/ipFamilies": `["IPv4"]`,
		},
	}})
	h, conf := newEtcdHost(t, etcdtest.Options{}, cluster(pool4, pool6))
	conf = conf.with("policy.type", "k8s").with("feature_control.floating_ips", true).
		with("kubernetes.kubeconfig", kubetest.Kubeconfig(t, h.proxied(t, proxy.URL), proxy.CAFile, c.AccountToken(t, "kube-system", "calico-cni-plugin")))
	if o := h.run(t, call{args: []string{"-t"}, stdin: conf.json(t)}); o.status != 0 || o.stdout != "" {
		t.Errorf("Network/53: -t: status %d, %s", o.status, o.stdout)
	}
	nowhere := kubetest.Kubeconfig(t, "https://127.0.0.1:1", proxy.CAFile, "none")
	if o := h.run(t, call{args: []string{"-t"}, stdin: conf.with("kubernetes.kubeconfig", nowhere).json(t)}); o.status != 1 || !strings.Contains(o.stdout, `"code": 100`) {
		t.Errorf("Network/53: -t without an API server: status %d, %s", o.status, o.stdout)
	}
	proxy.Forget()
	p := newPod(t, sandboxA, beside.args)
	r := h.add(t, p, conf)
	h.works(t, p, r)
	record := h.objects(t).under("/workloadendpoints/")["/calico/resources/v3/projectcalico.org/workloadendpoints/shop/node--1-k8s-web--0-eth0"]
	for _, want := range []string{
		`"app":"web"`, `"projectcalico.org/serviceaccount":"web"`, `"profiles":["kns.shop","ksa.shop.web"]`, `"serviceAccountName":"web"`,
		`"ipNATs":[{"internalIP":"` + r.addresses()[0] + `","externalIP":"192.0.2.77"}]`, `"allowSpoofedSourcePrefixes":["10.1.2.0/24"]`,
	} {
		if !strings.Contains(record, want) {
			t.Errorf("Network/32 Network/28 Network/29: the record lacks %s:\n%s", want, record)
		}
	}
	if len(r.addresses()) != 1 {
		t.Errorf("Network/20: addresses %v", r.addresses())
	}
	if asked := proxy.Exchanges(); len(asked) != 2 {
		t.Errorf("ADD asked the API server for %v, want namespace and pod", asked)
	}
	proxy.Forget()
	h.del(t, p, conf)
	h.nothingLeft(t)
	if asked := proxy.Exchanges(); len(asked) != 0 {
		t.Errorf("DEL asked the API server for %v", asked)
	}
	h.budget(t, "ADD", 5, p.verb(t, "ADD", conf)) // the first block was released, or not
	h.del(t, p, conf)
}
