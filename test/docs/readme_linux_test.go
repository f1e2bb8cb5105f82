package docs

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// block returns the fenced block that follows a line of a document.
func block(t *testing.T, document, line string) string {
	t.Helper()
	_, rest, found := strings.Cut(document, line)
	if !found {
		t.Fatalf("the document has no line %q", line)
	}
	_, rest, _ = strings.Cut(rest, "\n```")
	_, rest, _ = strings.Cut(rest, "\n")
	body, _, closed := strings.Cut(rest, "\n```")
	if !closed {
		t.Fatalf("no block follows %q", line)
	}
	return body
}

// TestReadmeCommands runs what the README tells a person to type, on a host of
// its own: a network namespace, and fresh folders where the commands write.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(text)
	tool, err := exec.Command("go", "tool", "-n", "cnitool").Output()
	if err != nil {
		t.Fatalf("finding cnitool: %v", err)
	}
	script := strings.Join([]string{
		"set -euo pipefail",
		"for folder in /run /var/lib /var/log /opt; do mount -t tmpfs readme $folder; done",
		"mkdir /run/net.d /run/tools",
		"ln -s " + strings.TrimSpace(string(tool)) + " /run/tools/cnitool",
		"export PATH=/opt/cni/bin:/run/tools:$PATH NETCONFPATH=/run/net.d",
		"ip link set lo up",
		block(t, readme, "## Install by hand"),
		"cat >/run/net.d/10-pods.conflist <<'CONFLIST'",
		block(t, readme, "## A network for podman, nerdctl or cnitool"),
		"CONFLIST",
		block(t, readme, "Try it:"),
		"calico-ipam show --show-blocks",
		"ip -d link show type veth",
		"ip route",
		"sysctl net.ipv4.ip_forward",
		"nft list ruleset",
		"ls /var/log/calico/cni/cni.log",
	}, "\n")
	command := exec.Command("unshare", "--net", "--mount", "--propagation", "private", "bash", "-c", script)
	command.Dir = "../.."
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, part := range []string{`"10.77.`, `"fd00:77:`, "IPS IN USE", "net.ipv4.ip_forward = 1"} {
		if !strings.Contains(string(output), part) {
			t.Errorf("the commands' output does not contain %q:\n%s", part, output)
		}
	}
}
