//go:build podman

package podman

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// block returns the fenced block that follows a line of a document.
func block(t *testing.T, document, line string) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), line)
	if !found {
		t.Fatalf("%s has no line %q", document, line)
	}
	_, rest, _ = strings.Cut(rest, "\n```")
	_, rest, _ = strings.Cut(rest, "\n")
	body, _, closed := strings.Cut(rest, "\n```")
	if !closed {
		t.Fatalf("%s: no block follows %q", document, line)
	}
	return body
}

// image builds the file system of the image: one static executable.
func image(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "web"), "./web")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, command := range []*exec.Cmd{build, exec.Command("tar", "-C", folder, "-cf", filepath.Join(folder, "web.tar"), "web")} {
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command.Args, err, out)
		}
	}
	return filepath.Join(folder, "web.tar")
}

// furnish is a host with an uplink and with fresh folders wherever podman or
// the plugins write. What podman does with cgroups depends on the machine and
// has nothing to do with networks: it does without.
const furnish = `
set -euo pipefail
for folder in /run /var/lib /var/log /var/tmp /opt /etc/cni /etc/containers; do
    mkdir -p $folder
    mount -t tmpfs podman $folder
done
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi # crun refuses a machine with both kinds
mkdir -p /etc/cni/net.d /etc/containers/containers.conf.d
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/etc/containers/policy.json
printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers"\ngraphroot = "/var/lib/containers"\n' >/etc/containers/storage.conf
printf '[containers]\ncgroups = "disabled"\n[engine]\nruntime = "crun"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n' \
    >/etc/containers/containers.conf.d/test.conf
export PATH=/opt/cni/bin:$PATH
ip link set lo up
ip link add uplink type veth peer name wire
ip link set wire up
ip link set uplink up
ip address add 192.0.2.1/24 dev uplink
ip address add 2001:db8::1/64 dev uplink nodad
ip route add default via 192.0.2.254
# answers ADDRESS...: the container is there, by both families.
answers() {
    for address in "$@"; do
        ping -c 1 -W 2 "$address" >/dev/null
        timeout 30 bash -c "until true 2>/dev/null >/dev/tcp/$address/80; do sleep 0.1; done"
        exec 3<>"/dev/tcp/$address/80"
        printf 'GET / HTTP/1.0\r\n\r\n' >&3
        grep 'you are' <&3
        exec 3>&-
    done
}
# count WHAT NUMBER COMMAND...: the command prints that many lines with it.
count() {
    local found
    found=$("${@:3}" | grep -c "$1" || true)
    [[ $found == "$2" ]] || { echo "$found lines with $1, want $2: ${*:3}" >&2; "${@:3}" >&2; false; }
}
`

// TestPodman is one container from its start, over a restart, to its end.
func TestPodman(t *testing.T) {
	const manual, readme = "../../docs/podman.md", "../../README.md"
	script := strings.Join([]string{
		furnish,
		"cd ../..",
		block(t, readme, "## Install by hand"),
		"cat >/etc/cni/net.d/10-pods.conflist <<'CONFLIST'",
		block(t, readme, "## A network for podman, nerdctl or cnitool"),
		"CONFLIST",
		"cat >/etc/containers/containers.conf <<'CONF'",
		block(t, manual, "2. `/etc/containers/containers.conf`:"),
		"CONF",
		`podman import --quiet --change 'CMD ["/web"]' "$1" localhost/web`,
		block(t, manual, "3. Run something:") + " | tee /run/first",
		"answers $(cat /run/first)",
		"count calico-cni/pods/ 1 ip link show type veth",
		"count 'Block' 2 calico-ipam show --show-blocks",
		block(t, manual, "After a restart it has other ones:") + " | tee /run/second",
		"answers $(cat /run/second)",
		"count calico-cni/pods/ 1 ip link show type veth",
		block(t, manual, "This gives them back"),
		"count calico-cni/pods/ 0 ip link show type veth",
		"count 'IP Pool .* 0 (0%) .* 0 (0%)' 2 calico-ipam show",
		"count 10.77. 0 ip route",
		"count 'connected the pod.* verb=ADD' 2 cat /var/log/calico/cni/cni.log",
		"echo nothing is left",
	}, "\n")
	command := exec.Command("unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", script, "podman", image(t))
	output, err := command.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(output)), "nothing is left") {
		t.Fatalf("%v\n%s", err, output)
	}
	t.Logf("%s", output)
}
