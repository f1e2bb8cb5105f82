package image

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// files lists what is in a folder, links as what they lead to.
func files(t *testing.T, root string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		out = append(out, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

func TestContents(t *testing.T) {
	t.Parallel()
	root := built(t)
	const want = "licenses/calico-cni/LICENSE licenses/containernetworking-plugins/LICENSE " +
		"opt/cni/bin/bandwidth opt/cni/bin/calico opt/cni/bin/calico-ipam opt/cni/bin/host-local opt/cni/bin/install " +
		"opt/cni/bin/loopback opt/cni/bin/portmap opt/cni/bin/tuning"
	if got := files(t, root); got != want {
		t.Errorf("the image holds %s", got)
	}
	for name := range strings.FieldsSeq(want) {
		path := filepath.Join(root, name)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o444 != 0o444 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
		if strings.HasPrefix(name, "opt/") {
			static(t, path)
		}
	}
}

// static fails if an executable needs anything but the kernel.
func static(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("%s needs %v, %v", path, libraries, err)
	}
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			t.Errorf("%s needs a dynamic linker", path)
		}
	}
}

// TestDockerfile: the image is the folder and nothing else.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var instructions []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			instructions = append(instructions, line)
		}
	}
	const want = "FROM scratch\nCOPY image/ /\nENV PATH=/opt/cni/bin\nCMD [\"/opt/cni/bin/install\"]"
	if got := strings.Join(instructions, "\n"); got != want {
		t.Errorf("the Dockerfile does:\n%s", got)
	}
}

// container is the image with folders of a host that it finds below /host.
type container struct {
	host string
	env  []string
	// before is done in the container's mount namespace, with $root as its root.
	before string
}

func newContainer(t *testing.T) *container {
	t.Helper()
	c := &container{host: t.TempDir(), env: []string{"SLEEP=false", "KUBERNETES_NODE_NAME=node-1"}}
	for _, folder := range []string{"opt/cni/bin", "secondary-bin-dir", "etc/cni/net.d"} {
		if err := os.MkdirAll(filepath.Join(c.host, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// run runs the image's command, read-only and with nothing else in it.
func (c *container) run(t *testing.T) (output string, err error) {
	t.Helper()
	script := strings.Join([]string{
		"set -euo pipefail",
		"root=$(mktemp -d)",
		"trap 'umount -R $root; rmdir $root' EXIT",
		"mount -t tmpfs image $root",
		"cp -a " + built(t) + "/. $root",
		"mkdir $root/host",
		"mount --bind " + c.host + " $root/host",
		c.before,
		"mount -o remount,bind,ro $root 2>/dev/null || mount -o remount,ro $root",
		"chroot $root /opt/cni/bin/install",
	}, "\n")
	command := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--propagation", "private", "bash", "-c", script)
	command.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.env...)
	out, err := command.CombinedOutput()
	return string(out), err
}

func (c *container) installs(t *testing.T) {
	t.Helper()
	if out, err := c.run(t); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (c *container) file(path string) string { return filepath.Join(c.host, path) }

func (c *container) content(t *testing.T, path string) []byte {
	t.Helper()
	body, err := os.ReadFile(c.file(path))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestInstallFromTheImage(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.installs(t)
	const plugins = "bandwidth calico calico-ipam host-local loopback portmap tuning"
	for _, folder := range []string{"opt/cni/bin", "secondary-bin-dir"} {
		if got := files(t, c.file(folder)); got != plugins {
			t.Errorf("%s holds %s", folder, got)
		}
		for name := range strings.FieldsSeq(plugins) {
			want, err := os.ReadFile(filepath.Join(built(t), "opt/cni/bin", name))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(c.content(t, folder+"/"+name), want) {
				t.Errorf("%s/%s is not the image's", folder, name)
			}
		}
	}
	if got := files(t, c.file("etc/cni/net.d")); got != "10-calico.conflist" {
		t.Errorf("net.d holds %s", got)
	}
	// All plugins of the image know 1.1.0, so the choice is there.
	var list struct {
		CNIVersions []string `json:"cniVersions"`
	}
	if err := json.Unmarshal(c.content(t, "etc/cni/net.d/10-calico.conflist"), &list); err != nil || strings.Join(list.CNIVersions, " ") != "1.0.0 1.1.0" {
		t.Errorf("%v, %v", list, err)
	}
}

func TestReadOnlyFolders(t *testing.T) {
	t.Parallel()
	readOnly := func(folders ...string) string {
		script := ""
		for _, folder := range folders {
			script += "mount --bind $root/host/" + folder + " $root/host/" + folder + "\nmount -o remount,bind,ro $root/host/" + folder + "\n"
		}
		return script
	}
	t.Run("Network/59 one read-only folder", func(t *testing.T) {
		t.Parallel()
		c := newContainer(t)
		c.before = readOnly("opt/cni/bin")
		c.installs(t)
		if files(t, c.file("opt/cni/bin")) != "" || !strings.Contains(files(t, c.file("secondary-bin-dir")), "calico-ipam") {
			t.Error("not installed into the one that is writable")
		}
	})
	t.Run("Network/59 two read-only folders", func(t *testing.T) {
		t.Parallel()
		c := newContainer(t)
		c.before = readOnly("opt/cni/bin", "secondary-bin-dir")
		out, err := c.run(t)
		if err == nil || !strings.Contains(out, "read-only file system") || !strings.Contains(out, "UPDATE_CNI_BINARIES=false") {
			t.Errorf("%v\n%s", err, out)
		}
		if got := files(t, c.file("etc/cni/net.d")); got != "" {
			t.Errorf("a runtime would begin to use what is not there: %s", got)
		}
	})
	t.Run("Network/59 two read-only folders, preinstalled", func(t *testing.T) {
		t.Parallel()
		c := newContainer(t)
		c.installs(t)
		c.before = readOnly("opt/cni/bin", "secondary-bin-dir")
		c.env = append(c.env, "UPDATE_CNI_BINARIES=false", "CNI_CONF_NAME=05-pods.conflist")
		c.installs(t)
		if got := files(t, c.file("etc/cni/net.d")); got != "05-pods.conflist" {
			t.Errorf("net.d holds %s", got)
		}
	})
}
