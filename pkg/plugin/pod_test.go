package plugin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/annotation"
	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
)

const (
	podPath       = "/calico/resources/v3/projectcalico.org/pods/shop/web-0"
	namespacePath = "/calico/resources/v3/projectcalico.org/namespaces/shop"
	podEndpoint   = "worker--b-k8s-web--0-eth0"
)

type annotations map[string]string

// podNode is a node with the namespace shop and in it the pod web-0.
func podNode(t *testing.T, ofNamespace, ofPod annotations) *node {
	t.Helper()
	n := newNode(t)
	n.plantJSON(namespacePath, map[string]any{"metadata": map[string]any{"name": "shop", "annotations": ofNamespace}})
	n.pod(ofPod)
	return n
}

func (n *node) plantJSON(path string, object any) {
	n.t.Helper()
	document, err := json.Marshal(object)
	if err != nil {
		n.t.Fatal(err)
	}
	n.store.Plant(path, string(document))
}

func (n *node) pod(ofPod annotations) {
	n.plantJSON(podPath, map[string]any{
		"metadata": map[string]any{"name": "web-0", "namespace": "shop", "generateName": "web-", "uid": "u1", "labels": map[string]string{"app": "web"}, "annotations": ofPod},
		"spec": map[string]any{"nodeName": nodeName, "serviceAccountName": "web", "containers": []any{map[string]any{
			"ports": []any{map[string]any{"name": "http", "containerPort": 8080}, map[string]any{"containerPort": 9090}},
		}}},
	})
}

// policy is the configuration of a cluster with policy from Kubernetes.
func (n *node) policy(members ...any) []byte {
	n.t.Helper()
	return n.config(append([]any{"policy", map[string]any{"type": "k8s"}}, members...)...)
}

func (n *node) addPod(conf []byte, change ...func(*invocation.Call)) (*types100.Result, error) {
	n.t.Helper()
	result, err := n.runAdd(n.call(invocation.Add, conf, append([]func(*invocation.Call){inPod}, change...)...))
	if err != nil {
		return nil, err
	}
	return n.result(result, err), nil
}

func (n *node) mustAddPod(conf []byte, change ...func(*invocation.Call)) []string {
	n.t.Helper()
	result, err := n.addPod(conf, change...)
	if err != nil {
		n.t.Fatalf("%v\n%s", err, n.stderr.String())
	}
	var addresses []string
	for _, ip := range result.IPs {
		addresses = append(addresses, ip.Address.IP.String())
	}
	return addresses
}

func (n *node) held() []string { return slices.Sorted(maps.Keys(n.allocated())) }

func TestPodEndpoint(t *testing.T) {
	t.Parallel()
	t.Run("Network/32 labels, profiles, ports", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, nil)
		n.mustAddPod(n.policy())
		endpoint := n.endpoints()[podEndpoint]
		if endpoint == nil {
			t.Fatalf("endpoints %v", n.endpoints())
		}
		labels := map[string]string{"app": "web", "projectcalico.org/namespace": "shop", "projectcalico.org/orchestrator": "k8s", "projectcalico.org/serviceaccount": "web"}
		spec := endpoint.Spec
		if !maps.Equal(endpoint.Metadata.Labels, labels) || endpoint.Metadata.GenerateName != "web-" || spec.ServiceAccount != "web" ||
			!slices.Equal(spec.Profiles, []string{"kns.shop", "ksa.shop.web"}) ||
			!slices.Equal(spec.Ports, []model.EndpointPort{{Name: "http", Protocol: "TCP", Port: 8080}}) {
			t.Errorf("endpoint %+v", endpoint)
		}
		if _, made := n.store.Raw("/calico/resources/v3/projectcalico.org/profiles/net"); made {
			t.Error("a profile of the network was made")
		}
	})
	t.Run("Network/31 annotations are inert without policy", func(t *testing.T) {
		t.Parallel()
		bad := annotations{annotation.IPv4Pools: "x", annotation.IPAddrs: "x", annotation.HWAddr: "x", annotation.FloatingIPs: "x"}
		n := podNode(t, bad, bad)
		n.mustAddPod(n.config())
		endpoint := n.endpoints()[podEndpoint]
		if !slices.Equal(endpoint.Spec.Profiles, []string{"net"}) || endpoint.Metadata.Labels["app"] != "" {
			t.Errorf("endpoint %+v", endpoint)
		}
	})
	t.Run("Network/29 Network/30 Network/28 what the pod wishes for", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, annotations{
			annotation.AllowedSourcePrefixes: `["10.1.2.3/24"]`, annotation.HWAddr: "1c:0c:0a:c0:ff:ee", annotation.IPFamilies: `["IPv4","IPv6"]`,
			annotation.FloatingIPs: `["192.0.2.1","2001:db8::1"]`,
		})
		conf := n.policy("feature_control", map[string]any{"floating_ips": true})
		for _, id := range []string{"c1", "c2"} {
			addresses := n.mustAddPod(conf, container(id))
			spec := n.endpoints()[podEndpoint].Spec
			want := []model.IPNAT{{InternalIP: addresses[0], ExternalIP: "192.0.2.1"}, {InternalIP: addresses[1], ExternalIP: "2001:db8::1"}}
			if !slices.Equal(spec.SpoofedSources, []string{"10.1.2.0/24"}) || !slices.Equal(spec.IPNATs, want) {
				t.Errorf("%s: endpoint %+v, want NATs %v", id, spec, want)
			}
			if mac := n.dataplane.requests[len(n.dataplane.requests)-1].MAC.String(); mac != "1c:0c:0a:c0:ff:ee" {
				t.Errorf("MAC %s", mac)
			}
		}
	})
	t.Run("Network/36 a new sandbox", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, nil)
		first := n.mustAddPod(n.policy())
		second := n.mustAddPod(n.policy(), container("c2"))
		if slices.Equal(first, second) || len(n.held()) != 2 {
			t.Errorf("addresses %v and %v, held %v", first, second, n.held())
		}
		endpoints := n.endpoints()
		if spec := endpoints[podEndpoint].Spec; len(endpoints) != 1 || spec.ContainerID != "c2" || !slices.Equal(spec.IPNetworks, []string{second[0] + "/32"}) {
			t.Errorf("endpoints %+v", endpoints[podEndpoint])
		}
	})
}

// TestLateDel: the record is the new sandbox's.
func TestLateDel(t *testing.T) {
	t.Parallel()
	t.Run("Network/44 DEL with another container id", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, nil)
		n.mustAddPod(n.policy())
		kept := n.mustAddPod(n.policy(), container("c2"))
		if err := n.plugin.Del(deadline(t), n.call(invocation.Del, n.policy(), inPod)); err != nil {
			t.Fatal(err)
		}
		if endpoint := n.endpoints()[podEndpoint]; endpoint == nil || endpoint.Spec.ContainerID != "c2" || !slices.Equal(n.held(), kept) {
			t.Errorf("endpoint %+v, held %v, want %v", endpoint, n.held(), kept)
		}
	})
}

func TestPodPools(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ofNamespace, ofPod annotations
		want               []string
	}{
		"Network/18 the namespace's":        {annotations{annotation.IPv4Pools: `["other"]`}, nil, []string{"10.78.0."}},
		"Network/18 the pod's win":          {annotations{annotation.IPv4Pools: `["pods"]`}, annotations{annotation.IPv4Pools: `["other"]`}, []string{"10.78.0."}},
		"Network/18 by family":              {annotations{annotation.IPv4Pools: `["other"]`, annotation.IPFamilies: `["IPv4","IPv6"]`}, annotations{annotation.IPv6Pools: `["pods6"]`}, []string{"10.78.0.", "fd00:77::"}},
		"Network/19 by CIDR":                {nil, annotations{annotation.IPv4Pools: `["10.78.0.0/24"]`}, []string{"10.78.0."}},
		"Network/20 only IPv6":              {annotations{annotation.IPFamilies: `["IPv4"]`}, annotations{annotation.IPFamilies: `["IPv6"]`}, []string{"fd00:77::"}},
		"nothing: the configuration's pool": {nil, nil, []string{"10.77.0."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := podNode(t, test.ofNamespace, test.ofPod)
			n.put(datastore.Step{create(model.KindIPPool, "other", &model.IPPool{Metadata: model.Metadata{Name: "other"}, RawCIDR: "10.78.0.0/24", BlockSize: 26})})
			got := n.mustAddPod(n.policy("ipam", map[string]any{"type": "calico-ipam", "ipv4_pools": []string{"pods"}}))
			if len(got) != len(test.want) {
				t.Fatalf("addresses %v, want %v", got, test.want)
			}
			for i, prefix := range test.want {
				if !strings.HasPrefix(got[i], prefix) {
					t.Errorf("addresses %v, want %v", got, test.want)
				}
			}
		})
	}
}

func TestPodRefused(t *testing.T) {
	t.Parallel()
	allowed := map[string]any{"ip_addrs_no_ipam": true, "floating_ips": true}
	for name, test := range map[string]struct {
		ofPod annotations
		conf  []any
		code  cnierr.Code
		words string
	}{
		"Network/19 unknown pool":       {annotations{annotation.IPv4Pools: `["nowhere"]`}, nil, cnierr.InvalidConfiguration, "nowhere"},
		"Network/20 IPX":                {annotations{annotation.IPFamilies: `["IPX"]`}, nil, cnierr.InvalidAnnotation, "IPX"},
		"Network/21 both":               {annotations{annotation.IPAddrs: `["10.77.0.9"]`, annotation.IPAddrsNoIPAM: `["10.77.0.9"]`}, []any{"feature_control", allowed}, cnierr.InvalidAnnotation, "combined"},
		"Network/22 two of a family":    {annotations{annotation.IPAddrs: `["10.77.0.8","10.77.0.9"]`}, nil, cnierr.InvalidAnnotation, "more than one"},
		"Network/23 without the flag":   {annotations{annotation.IPAddrsNoIPAM: `["10.77.0.9"]`}, nil, cnierr.InvalidAnnotation, "ip_addrs_no_ipam"},
		"Network/24 under host-local":   {annotations{annotation.IPAddrs: `["10.77.0.9"]`}, []any{"ipam", map[string]any{"type": "host-local"}}, cnierr.InvalidAnnotation, "calico-ipam"},
		"Network/27 without the flag":   {annotations{annotation.FloatingIPs: `["192.0.2.1"]`}, nil, cnierr.InvalidAnnotation, "floating_ips"},
		"Network/28 no such address":    {annotations{annotation.FloatingIPs: `["2001:db8::1"]`}, []any{"feature_control", allowed}, cnierr.InvalidAnnotation, "IPv6"},
		"Network/29 bad source prefix":  {annotations{annotation.AllowedSourcePrefixes: `["x"]`}, nil, cnierr.InvalidAnnotation, "allowedSourcePrefixes"},
		"Network/30 bad hwAddr":         {annotations{annotation.HWAddr: `x`}, nil, cnierr.InvalidAnnotation, "hwAddr"},
		"Network/25 the second is lost": {annotations{annotation.IPAddrs: `["10.77.0.9","2001:db8::9"]`}, nil, cnierr.AddressOutsidePools, "2001:db8::9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := podNode(t, nil, test.ofPod)
			n.install("host-local", "exit 1")
			_, err := n.addPod(n.policy(test.conf...))
			wantCode(t, err, test.code, test.words)
			n.nothingLeft()
		})
	}
	for name, path := range map[string]string{"pod": podPath, "namespace": namespacePath} {
		t.Run("no "+name, func(t *testing.T) {
			t.Parallel()
			n := podNode(t, nil, nil)
			n.store.Uproot(path)
			_, err := n.addPod(n.policy())
			wantCode(t, err, cnierr.TryAgainLater, name+" shop", "does not exist")
			n.nothingLeft()
		})
	}
}

func TestPodAddresses(t *testing.T) {
	t.Parallel()
	wished := annotations{annotation.IPAddrs: `["10.77.0.9","fd00:77::9"]`}
	want := []string{"10.77.0.9", "fd00:77::9"}
	t.Run("Network/25 taken from IPAM", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, wished)
		if got := n.mustAddPod(n.policy()); !slices.Equal(got, want) || !slices.Equal(n.held(), want) {
			t.Errorf("addresses %v, held %v, want %v", got, n.held(), want)
		}
		if n.dataplane.requests[0].SkipHostRoutes {
			t.Error("no host routes")
		}
		if err := n.plugin.Del(deadline(t), n.call(invocation.Del, n.policy(), inPod)); err != nil {
			t.Fatal(err)
		}
		n.nothingLeft()
	})
	t.Run("Network/25 a call each, CNI_ARGS restored", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, wished)
		n.plugin.SameBuild = func(string) bool { return false }
		n.install("calico-ipam", `cat >/dev/null
if [ "$CNI_COMMAND" = ADD ]; then ip=${CNI_ARGS##*IP=}; case $ip in *:*) l=128;; *) l=32;; esac
echo '{"cniVersion":"1.1.0","ips":[{"address":"'$ip/$l'"}],"routes":[{"dst":"'$ip/$l'"}]}'; fi
echo "$CNI_COMMAND $CNI_ARGS" >>`+n.bin+`/calls`)
		call := n.call(invocation.Add, n.policy(), inPod)
		result, err := n.runAdd(call)
		if got := n.result(result, err); len(got.IPs) != 2 || len(got.Routes) != 2 || strings.Contains(call.Args, "IP=10") {
			t.Errorf("result %v, arguments %s", got, call.Args)
		}
		if err := n.plugin.Del(deadline(t), n.call(invocation.Del, n.policy(), inPod)); err != nil {
			t.Fatal(err)
		}
		const args = "IgnoreUnknown=1;K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop"
		if calls := n.recorded("calls"); calls != fmt.Sprintf("ADD %s;IP=10.77.0.9\nADD %s;IP=fd00:77::9\nDEL %s\n", args, args, args) {
			t.Errorf("calls:\n%s", calls)
		}
	})
	t.Run("Network/26 the old sandbox's are released first", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, wished)
		for _, id := range []string{"c1", "c2", "c2"} {
			if got := n.mustAddPod(n.policy(), container(id)); !slices.Equal(got, want) {
				t.Errorf("%s: addresses %v, want %v", id, got, want)
			}
		}
		if held := n.allocated(); len(held) != 2 || held["10.77.0.9"] != "net.c2" || held["fd00:77::9"] != "net.c2" {
			t.Errorf("held %v", held)
		}
	})
	t.Run("Network/26 but not somebody else's", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, wished)
		n.mustAddPod(n.policy(), func(call *invocation.Call) { call.Args = "K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop" }, container("c9"))
		path := "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/" + podEndpoint
		record, _ := n.store.Raw(path)
		n.store.Plant(path, strings.Replace(record, `"c9"`, `"c8"`, 1))
		_, err := n.addPod(n.policy())
		wantCode(t, err, cnierr.AddressTaken, "10.77.0.9")
		if held := n.allocated(); held["10.77.0.9"] != "net.c9" {
			t.Errorf("held %v", held)
		}
	})
	t.Run("Network/23 without IPAM", func(t *testing.T) {
		t.Parallel()
		n := podNode(t, nil, annotations{annotation.IPAddrsNoIPAM: `["192.0.2.9"]`})
		conf := n.policy("feature_control", map[string]any{"ip_addrs_no_ipam": true})
		if got := n.mustAddPod(conf); !slices.Equal(got, []string{"192.0.2.9"}) || len(n.held()) != 0 {
			t.Errorf("addresses %v, held %v", got, n.held())
		}
		if request := n.dataplane.requests[0]; request.SkipHostRoutes || !slices.Equal(request.Addresses, []netip.Addr{netip.MustParseAddr("192.0.2.9")}) {
			t.Errorf("request %+v", request)
		}
		if err := n.plugin.Check(deadline(t), n.call(invocation.Check, n.withPrevious(conf, "192.0.2.9/32"), inPod)); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		n.dataplane.fail["Confirm"] = cnierr.New(cnierr.Overtaken, "gone")
		_, err := n.addPod(conf, container("c2"))
		wantCode(t, err, cnierr.Overtaken)
	})
}

// withPrevious is a configuration with the result of an ADD that had this
// address and no routes.
func (n *node) withPrevious(conf []byte, address string) []byte {
	n.t.Helper()
	members := map[string]any{}
	if err := json.Unmarshal(conf, &members); err != nil {
		n.t.Fatal(err)
	}
	members["prevResult"] = map[string]any{
		"cniVersion": "1.1.0", "interfaces": []any{map[string]any{"name": "cali1"}, map[string]any{"name": "eth0", "sandbox": "/ns/c1"}},
		"ips": []any{map[string]any{"interface": 1, "address": address}},
	}
	document, err := json.Marshal(members)
	if err != nil {
		n.t.Fatal(err)
	}
	return document
}
