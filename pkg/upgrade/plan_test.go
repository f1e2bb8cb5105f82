package upgrade

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"calico-cni/pkg/model"
)

func pod(namespace, name string, networks ...string) *model.Pod {
	return &model.Pod{Metadata: model.Metadata{Namespace: namespace, Name: name}, Node: "worker-b", Networks: networks}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	web := pod("shop", "web-0", "10.77.3.2/32", "fd00::2/128")
	booked := func(name, handle string) step {
		return step{name: name, addr: netip.MustParseAddr(name), handleID: handle, namespace: "shop", pod: "web-0"}
	}
	for name, test := range map[string]struct {
		files []file
		pods  []*model.Pod
		want  []step
	}{
		"nothing":                    {nil, []*model.Pod{web}, nil},
		"a pod's address":            {[]file{{"10.77.3.2", "c1\r\neth0"}}, []*model.Pod{web}, []step{booked("10.77.3.2", "k8s-pod-network.c1")}},
		"an old file":                {[]file{{"10.77.3.2", " c1 \n"}}, []*model.Pod{web}, []step{booked("10.77.3.2", "k8s-pod-network.c1")}},
		"a file that was cut short":  {[]file{{"10.77.3.2", ""}}, []*model.Pod{web}, []step{booked("10.77.3.2", "shop.web-0")}},
		"of IPv6":                    {[]file{{"fd00::2", "c1"}}, []*model.Pod{web}, []step{booked("fd00::2", "k8s-pod-network.c1")}},
		"nobody's address":           {[]file{{"10.77.3.3", "c1"}}, []*model.Pod{web}, []step{{name: "10.77.3.3"}}},
		"of a pod that has finished": {[]file{{"10.77.3.2", "c1"}}, []*model.Pod{pod("shop", "job")}, []step{{name: "10.77.3.2"}}},
		"of the host's network": {[]file{{"10.77.3.2", "c1"}}, []*model.Pod{{HostNetwork: true, Networks: []string{"10.77.3.2/32"}}},
			[]step{{name: "10.77.3.2"}}},
		"what was given last": {[]file{{"last_reserved_ip.0", "10.77.3.2"}}, []*model.Pod{web}, []step{{name: "last_reserved_ip.0"}}},
		"the lock":            {[]file{{"lock", ""}}, []*model.Pod{web}, nil},
		"anything else":       {[]file{{"README", ""}}, []*model.Pod{web}, []step{{name: "README", strange: "its name is no address"}}},
		"in the order of names": {[]file{{"10.77.3.4", "c"}, {"lock", ""}, {"10.77.3.2", "c1"}}, []*model.Pod{web},
			[]step{booked("10.77.3.2", "k8s-pod-network.c1"), {name: "10.77.3.4"}}},
	} {
		if got := plan(test.files, test.pods); !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func nodeWith(t *testing.T, tunnel string, cidrs ...string) *model.Node {
	t.Helper()
	list, err := json.Marshal(cidrs)
	if err != nil {
		t.Fatal(err)
	}
	node := &model.Node{}
	text := fmt.Sprintf(`{"metadata":{"name":"worker-b"},"spec":{"bgp":{"ipv4IPIPTunnelAddr":%q}},"status":{"podCIDRs":%s}}`, tunnel, list)
	if err := json.Unmarshal([]byte(text), node); err != nil {
		t.Fatal(err)
	}
	return node
}

func TestTunnelAddress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tunnel string
		cidrs  []string
		want   string
	}{
		"the first of the range":  {"", []string{"10.77.3.0/24"}, "10.77.3.1"},
		"of dual stack":           {"", []string{"10.77.3.0/24", "fd00::/64"}, "10.77.3.1"},
		"there is one already":    {"10.77.3.9", []string{"10.77.3.0/24"}, ""},
		"IPv6":                    {"", []string{"fd00::/64"}, ""},
		"IPv6 first":              {"", []string{"fd00::/64", "10.77.3.0/24"}, ""},
		"no range":                {"", nil, ""},
		"a range that is none":    {"", []string{"10.77.3.0"}, ""},
		"a range with host bits":  {"", []string{"10.77.3.7/24"}, "10.77.3.1"},
		"a range in a later part": {"", []string{"10.77.3.64/26"}, "10.77.3.65"},
	} {
		addr, ok := tunnelAddress(nodeWith(t, test.tunnel, test.cidrs...))
		if ok != (test.want != "") || ok && addr.String() != test.want {
			t.Errorf("%s: %s, %v; want %q", name, addr, ok, test.want)
		}
	}
}
