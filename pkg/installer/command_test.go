//go:build unix

package installer

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	second := filepath.Join(n.layout.Root, "second")
	put(t, filepath.Join(second, "other"), "", 0o600)
	flags := []string{"-from", n.layout.From, "-bin-dir", n.layout.BinDirs[0], "-bin-dir", second, "-conf-dir", n.layout.ConfDir}
	for _, row := range []struct {
		name string
		args []string
		env  variables
		exit int
		says string
	}{
		{"help", []string{"-h"}, nil, 0, "usage: calico install"},
		{"unknown flag", []string{"-to", "x"}, nil, 2, "usage: calico install"},
		{"argument", []string{"all"}, nil, 2, `argument "all" is not known`},
		{"folder without a name", []string{"-bin-dir", " "}, nil, 2, "want a folder"},
		{"mistakes in the environment", flags, variables{"SLEEP": "8", "CNI_MTU": "x"}, 1, "CNI_MTU"},
		{"nothing to install", []string{"-from", second, "-conf-dir", n.layout.ConfDir}, variables{"SLEEP": "false"}, 1, "with -from"},
		{"installs", flags, variables{"SLEEP": "false"}, 0, "10-calico.conflist"},
	} {
		var said strings.Builder
		exit := Main(t.Context(), Process{Args: row.args, Getenv: row.env.get, Stderr: &said, GOOS: "linux"})
		if exit != row.exit || !strings.Contains(said.String(), row.says) {
			t.Errorf("%s: exit %d, %s", row.name, exit, said.String())
		}
	}
	if got := names(t, second); got != "calico calico-ipam other portmap" {
		t.Errorf("the second folder holds %s", got)
	}
	// Not below /host: the folder's own name is what plugins know it by.
	if text := content(t, n.conf("10-calico.conflist")); !strings.Contains(text, `"kubeconfig": "`+n.layout.ConfDir+`/calico-kubeconfig"`) {
		t.Errorf("%s", text)
	}
}
