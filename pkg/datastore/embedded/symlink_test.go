//go:build !windows

package embedded

import (
	"os"
	"path/filepath"
	"testing"

	"calico-cni/pkg/datastore"
)

// TestSymlink: the file may be elsewhere, also before it exists.
func TestSymlink(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{
		"absolute": "", "relative": "../data/datastore", "another link": "hop", "loop": "datastore",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			if target == "" {
				target = filepath.Join(root, "data", "datastore")
			}
			link := filepath.Join(root, "etc", "datastore")
			if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, to := range map[string]string{"datastore": target, "hop": "../data/datastore"} {
				if err := os.Symlink(to, filepath.Join(root, "etc", name)); err != nil {
					t.Fatal(err)
				}
			}
			_, _, err := Open(withDeadline(t), link, Bootstrap{NodeName: node})
			if name == "loop" {
				demand(t, err, datastore.Unreachable, link)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Lstat(filepath.Join(root, "data", "datastore")); err != nil || !info.Mode().IsRegular() {
				t.Errorf("%v, %v", info, err)
			}
			mustOpen(t, link, Bootstrap{NodeName: node})
		})
	}
}
