package plugin

import (
	"context"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

// reported is a host-local that records what it is sent and gives an address.
const reported = `cat >"$(dirname "$0")/stdin.$CNI_COMMAND"
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.9/24"}]}'; exit 0`

// cidrNode is a node to whose Node another store, the API server, gives ranges.
func cidrNode(t *testing.T, name, cidrs string) (*node, *memory.Store) {
	t.Helper()
	n := newNode(t)
	n.install("host-local", reported)
	api := memory.New(memory.Options{})
	api.Plant("/calico/resources/v3/projectcalico.org/nodes/"+name, `{"metadata":{"name":"`+name+`"},"status":{"podCIDRs":[`+cidrs+`]}}`)
	n.plugin.Open = func(context.Context, *netconf.Config, string) (connect.Connection, error) {
		return connect.Connection{Store: kept{n.store}, API: api}, nil
	}
	return n, api
}

func hostLocal(ranges ...string) map[string]any {
	var sets []any
	for _, subnet := range ranges[1:] {
		sets = append(sets, []any{map[string]any{"subnet": subnet, "unknown": 1.50}})
	}
	return map[string]any{"type": "host-local", "subnet": ranges[0], "ranges": sets, "dataDir": "/x"}
}

func TestPodCIDR(t *testing.T) {
	t.Parallel()
	t.Run("Network/42 in subnet and ranges, any case", func(t *testing.T) {
		t.Parallel()
		n, api := cidrNode(t, nodeName, `"10.244.1.0/24","fd00:10:244:1::/64"`)
		if _, err := n.addPod(n.config("ipam", hostLocal("usePodCidr", "USEPODCIDR", "usepodcidripv6", "10.1.0.0/16"))); err != nil {
			t.Fatal(err)
		}
		sent := n.recorded("stdin.ADD")
		for _, want := range []string{`"subnet":"10.244.1.0/24"`, `"subnet":"fd00:10:244:1::/64"`, `"subnet":"10.1.0.0/16"`, `"unknown":1.5`, `"dataDir":"/x"`} {
			if !strings.Contains(sent, want) {
				t.Errorf("sent %s, which lacks %s", sent, want)
			}
		}
		if strings.Contains(strings.ToLower(sent), "usepodcidr") || api.Rounds() != 1 {
			t.Errorf("sent %s after %d reads of the Node", sent, api.Rounds())
		}
	})
	t.Run("Network/42 kubernetes.node_name", func(t *testing.T) {
		t.Parallel()
		n, _ := cidrNode(t, "other", `"10.244.2.0/24"`)
		if _, err := n.addPod(n.config("ipam", hostLocal("usePodCidr"), "kubernetes", map[string]any{"node_name": "other"})); err != nil {
			t.Fatal(err)
		}
		if sent := n.recorded("stdin.ADD"); !strings.Contains(sent, `"10.244.2.0/24"`) {
			t.Errorf("sent %s", sent)
		}
	})
	t.Run("Network/43 only ADD with a placeholder reads the Node", func(t *testing.T) {
		t.Parallel()
		n, api := cidrNode(t, nodeName, `"10.244.1.0/24"`)
		conf := n.config("ipam", hostLocal("usePodCidr", "usePodCidrIPv6"))
		if err := n.plugin.Del(deadline(t), n.call(invocation.Del, conf, inPod)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.addPod(n.config("ipam", hostLocal("10.1.0.0/16"))); err != nil {
			t.Fatal(err)
		}
		if api.Rounds() != 0 || strings.Contains(n.recorded("stdin.DEL"), "10.244.1.0") {
			t.Errorf("%d requests; DEL sent %s", api.Rounds(), n.recorded("stdin.DEL"))
		}
	})
	for name, test := range map[string]struct {
		cidrs, subnet string
		code          cnierr.Code
		words         string
	}{
		"Network/42 none of the family":  {`"10.244.1.0/24"`, "usePodCidrIPv6", cnierr.TryAgainLater, "no IPv6 pod CIDR"},
		"Network/42 none at all":         {``, "usePodCidr", cnierr.TryAgainLater, "no IPv4 pod CIDR"},
		"Network/42 two of one family":   {`"10.244.1.0/24","10.244.2.0/24"`, "usePodCidr", cnierr.Unclassified, "two IPv4 pod CIDRs"},
		"Network/42 one that is no CIDR": {`"x"`, "usePodCidr", cnierr.Unclassified, `"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := cidrNode(t, nodeName, test.cidrs)
			_, err := n.addPod(n.config("ipam", hostLocal(test.subnet)))
			wantCode(t, err, test.code, test.words, "ipam.subnet")
			n.nothingLeft()
		})
	}
	t.Run("Network/42 no such Node", func(t *testing.T) {
		t.Parallel()
		n, _ := cidrNode(t, "other", ``)
		_, err := n.addPod(n.config("ipam", hostLocal("usePodCidr")))
		wantCode(t, err, cnierr.NodeUnknown, nodeName)
	})
	t.Run("the API server is down", func(t *testing.T) {
		t.Parallel()
		n, api := cidrNode(t, nodeName, ``)
		api.SetHooks(memory.Hooks{Before: func(_ context.Context, call memory.Call) error { return memory.Down(call) }})
		_, err := n.addPod(n.config("ipam", hostLocal("usePodCidr")))
		wantCode(t, err, cnierr.TryAgainLater)
		if entries := n.entries(datastore.ListResources{Kind: model.KindWorkloadEndpoint}); len(entries) != 0 {
			t.Errorf("endpoint %v", entries[0].Key)
		}
	})
}

func TestMigrationTarget(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		plugin, routes string
		skipped        bool
	}{
		"Network/52 calico-ipam without routes": {"calico-ipam", "", true},
		"Network/52 calico-ipam with routes":    {"calico-ipam", `,"routes":[{"dst":"10.77.0.9/26"}]`, false},
		"Network/52 another IPAM":               {"other", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.plugin.SameBuild = func(string) bool { return false }
			n.install(test.plugin, `cat >/dev/null; [ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.77.0.9/26"}]`+test.routes+`}'; exit 0`)
			if _, err := n.addPod(n.config("ipam", map[string]any{"type": test.plugin})); err != nil {
				t.Fatal(err)
			}
			if skipped := n.dataplane.requests[0].SkipHostRoutes; skipped != test.skipped {
				t.Errorf("host routes skipped: %v, want %v", skipped, test.skipped)
			}
		})
	}
}
