package workload

import (
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
)

const container = "3f9c0b7d5a1e4c2f8a6b9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c"

// pod is the identity of a Kubernetes pod's interface.
func pod(node, namespace, name, ifName string) Identity {
	a := Attachment{Network: "k8s-pod-network", ContainerID: container, IfName: ifName}
	return NewIdentity(node, a, Args{PodNamespace: namespace, PodName: name}, "")
}

// bare is the identity of a container's interface outside Kubernetes.
func bare(node, containerID, ifName string) Identity {
	return NewIdentity(node, Attachment{Network: "net", ContainerID: containerID, IfName: ifName}, Args{}, "")
}

func TestNewIdentity(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                         string
		args                         Args
		override                     string
		orchestrator, namespace, pod string
	}{
		{"Kubernetes", Args{PodName: "web-0", PodNamespace: "shop", TestNamespace: "blue"}, "mesos", "k8s", "shop", "web-0"},
		{"pod name alone is not Kubernetes", Args{PodName: "web-0"}, "", "cni", "default", ""},
		{"namespace alone is not Kubernetes", Args{PodNamespace: "shop"}, "", "cni", "default", ""},
		{"test namespace", Args{TestNamespace: "blue"}, "", "cni", "blue", ""},
		{"configured namespace", Args{TestNamespace: "blue"}, "mesos", "cni", "mesos", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			id := NewIdentity("n1", Attachment{}, tt.args, tt.override)
			if id.Orchestrator != tt.orchestrator || id.Namespace != tt.namespace || id.Pod != tt.pod {
				t.Errorf("got %+v, want %s, %s, %s", id, tt.orchestrator, tt.namespace, tt.pod)
			}
			if id.IsKubernetes() != (tt.orchestrator == "k8s") {
				t.Errorf("IsKubernetes = %v for %s", id.IsKubernetes(), tt.orchestrator)
			}
		})
	}
}

func TestEndpointName(t *testing.T) {
	t.Parallel()
	tests := []struct {
		id   Identity
		want string
	}{
		{pod("node1", "shop", "web", "eth0"), "node1-k8s-web-eth0"},
		{pod("node-1", "shop", "web-0", "eth0"), "node--1-k8s-web--0-eth0"},
		{pod("win-3", "shop", "api-0", "eth0"), "win--3-k8s-api--0-eth0"},
		{pod("ip-10-0-3-7.eu-west-1.compute.internal", "kube-system", "coredns-5d78c9869d-abcde", "eth0"),
			"ip--10--0--3--7.eu--west--1.compute.internal-k8s-coredns--5d78c9869d--abcde-eth0"},
		{pod("n1", "shop", "a--b", "eth0"), "n1-k8s-a----b-eth0"},
		{pod("rack-2-n9", "shop", "cart.v2", "net-1"), "rack--2--n9-k8s-cart.v2-net--1"},
		{bare("n1", "3f9c0b7d5a1e", "eth0"), "n1-cni-3f9c0b7d5a1e-eth0"},
	}
	for _, tt := range tests {
		t.Run("Network/14 endpoint name escaping "+tt.want, func(t *testing.T) {
			t.Parallel()
			got, err := tt.id.EndpointName()
			if err != nil || got != tt.want {
				t.Fatalf("EndpointName = %q, %v, want %q", got, err, tt.want)
			}
			node, orchestrator, third, endpoint, err := SplitEndpointName(got)
			if err != nil {
				t.Fatal(err)
			}
			if node != tt.id.Node || orchestrator != tt.id.Orchestrator || third != tt.id.third() || endpoint != tt.id.Attachment.IfName {
				t.Errorf("split into %q %q %q %q, want the parts of %+v", node, orchestrator, third, endpoint, tt.id)
			}
		})
	}
}

func TestEndpointNameRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		id    Identity
		code  cnierr.Code
		parts []string
	}{
		{"node with dash in front", pod("-n1", "shop", "web", "eth0"), cnierr.InvalidConfiguration, []string{"node name", `"-n1"`}},
		{"pod with dash at the end", pod("n1", "shop", "web-", "eth0"), cnierr.InvalidEnvironment, []string{"pod name", `"web-"`}},
		{"container with dash at the end", bare("n1", "3f-", "eth0"), cnierr.InvalidEnvironment, []string{"container id", `"3f-"`}},
		{"no node", pod("", "shop", "web", "eth0"), cnierr.InvalidConfiguration, []string{"node name is empty"}},
		{"no interface", pod("n1", "shop", "web", ""), cnierr.InvalidEnvironment, []string{"interface name is empty"}},
	}
	for _, tt := range tests {
		t.Run("Network/14 "+tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.id.EndpointName()
			wantError(t, err, tt.code, tt.parts...)
		})
	}
}

func TestEndpointPrefix(t *testing.T) {
	t.Parallel()
	tests := []struct {
		id   Identity
		want string
	}{
		{pod("n1", "shop", "web-0", "eth0"), "n1-k8s-web--0-"},
		{bare("n1", "3f9c0b7d5a1e", "eth0"), "n1-cni-3f9c0b7d5a1e-"},
		{bare("n1", "", "eth0"), "n1-cni-"},
		{bare("", "3f9c", "eth0"), ""},
	}
	for _, tt := range tests {
		t.Run("Network/15 "+tt.want, func(t *testing.T) {
			t.Parallel()
			if got, err := tt.id.EndpointPrefix(); err != nil || got != tt.want {
				t.Errorf("EndpointPrefix = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	if _, err := pod("n1", "shop", "-web", "eth0").EndpointPrefix(); err == nil {
		t.Error("a prefix with a bad segment was built")
	}
}

func TestSameWorkload(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		endpoint string
		want     bool
	}{
		{"its own", "n1-k8s-my-eth0", true},
		{"another interface", "n1-k8s-my-net--1", true},
		{"Network/15 pod my does not match pod my-1", "n1-k8s-my--1-eth0", false},
		{"another node", "n2-k8s-my-eth0", false},
		{"another orchestrator", "n1-cni-my-eth0", false},
		{"no endpoint name", "n1-k8s-my-", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := pod("n1", "shop", "my", "eth0").SameWorkload(tt.endpoint); got != tt.want {
				t.Errorf("SameWorkload(%q) = %v, want %v", tt.endpoint, got, tt.want)
			}
		})
	}
}

func TestSplitEndpointName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"n1-libnetwork-libnetwork-ep0": "n1 libnetwork libnetwork ep0",
		"n1-openstack-vm--7-tap--0":    "n1 openstack vm-7 tap-0",
		"-n1-k8s-web-eth0":             "-n1 k8s web eth0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, orchestrator, third, endpoint, err := SplitEndpointName(name)
			if got := strings.Join([]string{node, orchestrator, third, endpoint}, " "); err != nil || got != want {
				t.Errorf("split into %q, %v, want %q", got, err, want)
			}
		})
	}
	for _, name := range []string{"", "n1", "n1-k8s-web", "n1-k8s-web-", "n1-k8s-web-eth0-more"} {
		t.Run("refused "+name, func(t *testing.T) {
			t.Parallel()
			if _, _, _, _, err := SplitEndpointName(name); err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
				t.Errorf("error %v does not name %q", err, name)
			}
		})
	}
}

func FuzzSplitEndpointName(f *testing.F) {
	f.Add("n-1", "web-0", "eth0")
	f.Add("a--b", "c---d", "-")
	f.Fuzz(func(t *testing.T, node, name, ifName string) {
		id := pod(node, "shop", name, ifName)
		if name == "" {
			return
		}
		full, err := id.EndpointName()
		if err != nil {
			return
		}
		gotNode, _, gotPod, gotIf, err := SplitEndpointName(full)
		if err != nil || gotNode != node || gotPod != name || gotIf != ifName {
			t.Errorf("%q split into %q, %q, %q, %v", full, gotNode, gotPod, gotIf, err)
		}
	})
}

func TestHostInterface(t *testing.T) {
	t.Parallel()
	tests := []struct {
		id           Identity
		prefix, want string
	}{
		{pod("n1", "shop", "web-0", "eth0"), "cali", "calia4fc3c48bd8"},
		{pod("n1", "default", "web-0", "eth0"), "cali", "cali0d7763386da"},
		{pod("n1", "kube-system", "coredns-5d78c9869d-abcde", "eth0"), "cali", "cali4d5f75c480c"},
		{pod("n1", "shop", "cart.v2", "eth0"), "cali", "cali0ac9b5ed9f9"},
		{pod("n1", "batch", "job-1-x7k2p", "eth0"), "cali", "cali119848b7742"},
		{pod("n1", "prod", "db-primary-0", "eth0"), "cali", "calid5144a7313c"},
		{pod("n9", "shop", "web-0", "net1"), "foo", "fooa4fc3c48bd8"},
	}
	for _, tt := range tests {
		t.Run("Network/16 function of namespace and pod "+tt.want, func(t *testing.T) {
			t.Parallel()
			if got := tt.id.HostInterface(tt.prefix); got != tt.want {
				t.Errorf("HostInterface = %q, want %q", got, tt.want)
			}
		})
	}
	for id, want := range map[string]string{
		container:      "cali3f9c0b7d5a1",
		"3f9c0b7d5a1":  "cali3f9c0b7d5a1",
		"3f9c":         "cali3f9c",
		"cnitool-12ab": "calicnitool-12a",
	} {
		t.Run("Network/17 at most 11 characters of the container id "+id, func(t *testing.T) {
			t.Parallel()
			if got := bare("n1", id, "eth0").HostInterface("foo"); got != want {
				t.Errorf("HostInterface = %q, want %q", got, want)
			}
		})
	}
}

func TestSecondHostInterface(t *testing.T) {
	t.Parallel()
	// Digests are of shop.web-0.eth1 and cnitool-12ab34.eth0, computed with sha1sum.
	tests := []struct {
		name string
		id   Identity
		want string
	}{
		{"pod", pod("n1", "shop", "web-0", "eth1"), "foo721416c64f7"},
		{"container", bare("n1", "cnitool-12ab34", "eth0"), "cali3bf3fc708a8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.id.SecondHostInterface("foo"); got != tt.want {
				t.Errorf("SecondHostInterface = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestHandleIDs(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, got, want string }{
		{"default", pod("n1", "shop", "web-0", "eth0").HandleID(), "k8s-pod-network." + container},
		{"second interface of the sandbox", pod("n1", "shop", "web-0", "eth1").HandleID(), "k8s-pod-network." + container},
		{"case is kept", Identity{Attachment: Attachment{Network: "Net-A", ContainerID: "ABC"}}.HandleID(), "Net-A.ABC"},
		{"before v3, Kubernetes", pod("n1", "shop", "web-0", "eth0").LegacyHandleID(), "shop.web-0"},
		{"before v3, others", bare("n1", "3f9c", "eth0").LegacyHandleID(), "3f9c"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.got != tt.want {
				t.Errorf("got %q, want %q", tt.got, tt.want)
			}
		})
	}
	if got := len(pod("n1", "shop", "web-0", "eth0").HandleID()); got != 80 {
		t.Errorf("the default handle id has %d characters, want 80", got)
	}
}
