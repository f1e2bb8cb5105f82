package docs

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/embedded"
	"calico-cni/pkg/model"
)

// twoNodes is a datastore with a block of each of two nodes, worker-a and
// worker-b; a file stands in for a cluster's.
func twoNodes(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "datastore.db")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, _, err := embedded.Open(ctx, file, embedded.Bootstrap{NodeName: "worker-a"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	key := model.ResourceKey{Kind: model.KindNode, Name: "worker-b"}
	node, err := model.Decode(key, []byte(`{"metadata":{"name":"worker-b"},"spec":{"bgp":{"ipv4Address":"192.0.2.12/24"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	step := datastore.Step{datastore.Put(key, node, datastore.Absent)}
	for host, cidr := range map[string]string{"worker-a": "10.77.0.0/26", "worker-b": "10.77.0.64/26"} {
		affinity := model.AffinityKey{Type: model.AffinityHost, Host: host, CIDR: netip.MustParsePrefix(cidr)}
		step = append(step, datastore.Put(affinity, &model.Affinity{State: model.StateConfirmed}, datastore.Absent),
			datastore.Put(model.BlockKey{CIDR: affinity.CIDR}, model.NewBlock(affinity.CIDR, affinity.Owner(), time.Now(), nil), datastore.Absent))
	}
	if _, err := store.Write(ctx, step); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRoutesCommands runs what docs/routes.md tells a person to type, as node
// worker-a of two.
func TestRoutesCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Join([]string{
		"set -euo pipefail",
		"hostname worker-a",
		"for folder in /run /var/lib; do mount -t tmpfs routes $folder; done",
		"mkdir -p /var/lib/calico/cni && cp " + twoNodes(t) + " /var/lib/calico/cni/datastore.db",
		"scripts/build /run/bin",
		"export PATH=/run/bin:$PATH",
		"ip link set lo up && ip link add uplink type veth peer name switch && ip link set switch up && ip link set uplink up",
		"ip address add 192.0.2.11/24 dev uplink",
		block(t, string(text), "On each node:"),
		"ip route add 10.77.0.128/26 via 192.0.2.13 proto 80 && ip route add 10.77.0.192/26 via 192.0.2.13",
		block(t, string(text), "can be removed."),
		"echo at the end:",
		"ip route",
	}, "\n")
	command := exec.Command("unshare", "--net", "--uts", "--mount", "--propagation", "private", "bash", "-c", script)
	command.Dir = "../.."
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	during, after, _ := strings.Cut(string(output), "at the end:")
	for _, part := range []string{"ip route replace 10.77.0.64/26 via 192.0.2.12\n", "10.77.0.64/26 via 192.0.2.12 dev uplink"} {
		if !strings.Contains(during, part) {
			t.Errorf("the commands' output does not contain %q:\n%s", part, during)
		}
	}
	if !strings.Contains(after, "10.77.0.64/26 via 192.0.2.12 dev uplink proto 80") || !strings.Contains(after, "10.77.0.192/26") ||
		strings.Contains(after, "10.77.0.128/26") {
		t.Errorf("the routes at the end:\n%s", after)
	}
}
