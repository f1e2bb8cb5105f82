//go:build linux

package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRun is the benchmark itself, each row once.
func TestRun(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("scripts/build", "bin")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the plugins: %v\n%s", err, out)
	}
	out, err := exec.Command("go", "run", ".", "-plugins", filepath.Join(root, "bin"), "-n", "1", "-crowds", "0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rows := strings.Split(string(out), "\n")
	for _, want := range []string{
		"floor: empty program", "floor: one RPC etcd", "floor: veth add", "calico -v", "calico-ipam -v",
		"ADD etcd", "DEL etcd", "calico-ipam ADD etcd", "calico-ipam DEL etcd",
		"ADD embedded", "DEL embedded", "calico-ipam ADD embedded", "calico-ipam DEL embedded",
	} {
		if !slices.ContainsFunc(rows, func(row string) bool { return strings.HasPrefix(strings.Join(strings.Fields(row), " "), want+" 1 ") }) {
			t.Errorf("no row of %q:\n%s", want, out)
		}
	}
	refused, err := exec.Command("go", "run", ".", "-engines", "paper").CombinedOutput()
	if err == nil || !strings.Contains(string(refused), `"paper" is none of etcd, embedded, kubernetes, kubernetes+10ms`) {
		t.Errorf("an engine that there is not: %v, %s", err, refused)
	}
}
