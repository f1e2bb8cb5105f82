//go:build unix

package installer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestBinaries(t *testing.T) {
	t.Parallel()
	t.Run("Network/58 a running binary is replaced", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		// Another process copies: a file that this one has open for writing at a
		// fork cannot be executed.
		if out, err := exec.Command("cp", "/bin/sleep", n.bin("calico")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		running := exec.CommandContext(t.Context(), n.bin("calico"), "600")
		if err := running.Start(); err != nil {
			t.Fatal(err)
		}
		n.installs(t)
		if content(t, n.bin("calico")) != newPlugin || mode(t, n.bin("calico")) != 0o755 {
			t.Error("it was not replaced")
		}
		if err := running.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("what ran before does not run any more: %v", err)
		}
		_ = running.Process.Kill()
		_ = running.Wait() // killed
	})
	t.Run("Network/58 equal files are not copied", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.installs(t)
		before, err := os.Stat(n.bin("calico"))
		if err != nil {
			t.Fatal(err)
		}
		put(t, n.bin("portmap"), strings.Replace(newPlugin, "1.1.0", "0.4.0", 1), 0o755)
		if err := os.Chmod(n.bin("calico"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.installs(t)
		after, err := os.Stat(n.bin("calico"))
		if err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(before, after) || after.Mode().Perm() != 0o755 {
			t.Errorf("%v became %v", before, after)
		}
		if content(t, n.bin("portmap")) != newPlugin {
			t.Error("a file of the same size with other content stayed")
		}
	})
	t.Run("Network/58 UPDATE_CNI_BINARIES", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		put(t, n.bin("calico"), oldPlugin, 0o700)
		n.env["UPDATE_CNI_BINARIES"] = "false"
		n.installs(t)
		if content(t, n.bin("calico")) != oldPlugin || mode(t, n.bin("calico")) != 0o700 {
			t.Error("an existing binary was touched")
		}
		if content(t, n.bin("calico-ipam")) != newPlugin {
			t.Error("a missing binary was not installed")
		}
	})
	t.Run("Network/58 SKIP_CNI_BINARIES", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.env["SKIP_CNI_BINARIES"] = "portmap,calico"
		n.installs(t)
		if got := names(t, n.layout.BinDirs[0]); got != "calico calico-ipam" {
			t.Errorf("installed: %s", got)
		}
	})
	t.Run("Network/59 a second folder", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		if err := os.Mkdir(n.layout.BinDirs[1], 0o755); err != nil {
			t.Fatal(err)
		}
		n.installs(t)
		if got := names(t, n.layout.BinDirs[1]); got != "calico calico-ipam portmap" || names(t, n.layout.BinDirs[0]) != got {
			t.Errorf("installed: %s", got)
		}
	})
	t.Run("what a killed installer has left", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.installs(t)
		for _, path := range []string{n.bin("calico.tmp"), n.bin("portmap.tmp"), n.bin("install.old"), n.conf("10-calico.conflist.tmp")} {
			put(t, path, "half", 0o600)
		}
		put(t, n.bin("bridge.tmp"), "not ours", 0o600)
		n.env["SKIP_CNI_BINARIES"] = "portmap"
		n.installs(t)
		if got := names(t, n.layout.BinDirs[0]); got != "bridge.tmp calico calico-ipam portmap" {
			t.Errorf("%s", got)
		}
		if got := names(t, n.layout.ConfDir); got != "10-calico.conflist" {
			t.Errorf("%s", got)
		}
	})
	t.Run("a link to the executable", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		if err := os.Remove(filepath.Join(n.layout.From, "calico-ipam")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("calico", filepath.Join(n.layout.From, "calico-ipam")); err != nil {
			t.Fatal(err)
		}
		n.installs(t)
		if info, err := os.Lstat(n.bin("calico-ipam")); err != nil || !info.Mode().IsRegular() || content(t, n.bin("calico-ipam")) != newPlugin {
			t.Errorf("%v, %v", info, err)
		}
	})
	t.Run("a folder in the way", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		put(t, n.bin("calico/x"), "", 0o600)
		if err := n.run(t); err == nil || !strings.Contains(err.Error(), n.bin("calico")) {
			t.Errorf("%v", err)
		}
		if got := names(t, n.layout.ConfDir); got != "" {
			t.Errorf("a runtime would begin to use what is not there: %s", got)
		}
	})
}
