package installer

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestPlanCopies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, names, skip, goos, want string
	}{
		{"image", "calico calico-ipam install portmap tuning", "", "linux", "calico-ipam calico portmap tuning"},
		{"one executable for both", "calico install", "", "linux", "calico>calico-ipam calico"},
		{"Network/58 SKIP_CNI_BINARIES", "calico calico-ipam portmap tuning", "tuning calico calico-ipam absent", "linux", "calico-ipam calico portmap"},
		{"leftovers", "calico calico-ipam portmap.tmp portmap.old", "", "linux", "calico-ipam calico"},
		{"Windows", "calico.exe calico-ipam.exe host-local.exe install.exe", "", "windows", "calico-ipam.exe calico.exe host-local.exe"},
		{"Network/58 SKIP_CNI_BINARIES on Windows", "calico.exe host-local.exe win-bridge.exe", "host-local win-bridge.exe", "windows", "calico.exe>calico-ipam.exe calico.exe"},
		{"not a folder of plugins", "bash ls", "", "linux", ""},
		{"plugins for another system", "calico.exe", "", "linux", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			plan, err := planCopies(strings.Fields(row.names), strings.Fields(row.skip), row.goos)
			var got []string
			for _, c := range plan {
				if c.from != c.to {
					c.to = c.from + ">" + c.to
				}
				got = append(got, c.to)
			}
			if strings.Join(got, " ") != row.want || (err != nil) != (row.want == "") {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestChooseDirs(t *testing.T) {
	t.Parallel()
	readOnly := errors.New("read-only file system")
	for _, row := range []struct {
		name   string
		dirs   []binDir
		update bool
		want   []string
		ok     bool
	}{
		{"Network/59 both writable", []binDir{{path: "a"}, {path: "b"}}, true, []string{"a", "b"}, true},
		{"Network/59 one read-only", []binDir{{path: "a", refusal: readOnly}, {path: "b"}}, true, []string{"b"}, true},
		{"Network/59 two read-only", []binDir{{path: "a", refusal: readOnly}, {path: "b", refusal: readOnly}}, true, nil, false},
		{"Network/59 two read-only, not to be updated", []binDir{{path: "a", refusal: readOnly}, {path: "b", refusal: readOnly}}, false, nil, false},
		{"Network/59 two read-only, preinstalled", []binDir{{path: "a", refusal: readOnly}, {path: "b", refusal: readOnly, complete: true}}, false, nil, true},
		{"Network/59 two read-only, preinstalled but to be updated", []binDir{{path: "a", refusal: readOnly, complete: true}, {path: "b", refusal: readOnly}}, true, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := chooseDirs(row.dirs, row.update)
			if !slices.Equal(got, row.want) || (err == nil) != row.ok {
				t.Errorf("%v, %v", got, err)
			}
			if err != nil && (!errors.Is(err, readOnly) || !strings.Contains(err.Error(), "UPDATE_CNI_BINARIES")) {
				t.Errorf("no cause or no remedy: %v", err)
			}
		})
	}
}

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

// TestReplaceFile: what cannot be written leaves the old file and nothing else.
func TestReplaceFile(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	path := filepath.Join(directory, "file")
	put(t, path, "old", 0o644)
	full := errors.New("no space left on device")
	err := replaceFile(path, 0o600, func(w io.Writer) error {
		_, _ = w.Write([]byte("ne"))
		return full
	})
	if !errors.Is(err, full) || content(t, path) != "old" || names(t, directory) != "file" {
		t.Errorf("%v", err)
	}
	err = replaceFile(path, 0o600, func(w io.Writer) error {
		put(t, path+".tmp2", "of another installer", 0o600)
		return os.Rename(path+".tmp2", path+unfinished)
	})
	if err == nil || !strings.Contains(err.Error(), "another installer") || content(t, path) != "old" {
		t.Errorf("two at once: %v", err)
	}
}

// TestRenameOverRunning plays a system on which what runs cannot be replaced.
func TestRenameOverRunning(t *testing.T) {
	t.Parallel()
	busy := errors.New("access is denied")
	for _, row := range []struct {
		name     string
		failing  string
		ok       bool
		contents string
	}{
		{"runs", "tmp>exe", true, "new"},
		{"cannot be moved either", "tmp>exe exe>exe.old", false, "old"},
		{"the way is free, but no good", "tmp>exe tmp>exe", false, "old"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			at := func(name string) string { return filepath.Join(directory, name) }
			put(t, at("exe"), "old", 0o755)
			put(t, at("tmp"), "new", 0o755)
			failing := strings.Fields(row.failing)
			err := renameOverRunning(at("tmp"), at("exe"), func(from, to string) error {
				step := filepath.Base(from) + ">" + filepath.Base(to)
				if len(failing) > 0 && failing[0] == step {
					failing = failing[1:]
					return busy
				}
				return os.Rename(from, to)
			})
			if (err == nil) != row.ok || content(t, at("exe")) != row.contents {
				t.Errorf("%v, exe holds %s", err, content(t, at("exe")))
			}
		})
	}
}

func TestSameContent(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	big := strings.Repeat("x", 200*1024)
	for name, body := range map[string]string{"a": big, "b": big, "c": big[1:] + "y", "d": big + "x", "empty": ""} {
		put(t, filepath.Join(directory, name), body, 0o600)
	}
	for _, row := range []struct {
		a, b string
		want bool
	}{{"a", "b", true}, {"a", "c", false}, {"a", "d", false}, {"empty", "empty", true}, {"a", "absent", false}, {"absent", "a", false}} {
		got, err := sameContent(filepath.Join(directory, row.a), filepath.Join(directory, row.b))
		if err != nil || got != row.want {
			t.Errorf("%s and %s: %v, %v", row.a, row.b, got, err)
		}
	}
}
