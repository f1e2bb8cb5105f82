package installer

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
