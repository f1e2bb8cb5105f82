package build

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestSame(t *testing.T) {
	id = "0123456789abcdef"
	t.Cleanup(func() { id = "" })
	stamp := func(id string) string { return fmt.Sprintf("%-64s", "calico-cni:"+id) }
	for name, test := range map[string]struct {
		content string
		want    bool
	}{
		"same build":         {"code" + stamp("0123456789abcdef"), true},
		"another build":      {"code" + stamp("fedcba9876543210"), false},
		"longer id":          {"code" + stamp("0123456789abcdef0"), false},
		"no stamp":           {"#!/bin/sh\n" + fmt.Sprintf("%100s", ""), false},
		"shorter than stamp": {"x", false},
		"empty":              {"", false},
		"stamp not at end":   {stamp("0123456789abcdef") + "x", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "calico-ipam")
			if err := os.WriteFile(path, []byte(test.content), 0o755); err != nil {
				t.Fatal(err)
			}
			if got := Same(path); got != test.want {
				t.Errorf("Same = %v, want %v", got, test.want)
			}
		})
	}
	t.Run("missing file", func(t *testing.T) {
		if Same(filepath.Join(t.TempDir(), "absent")) {
			t.Error("a missing file counts as the same build")
		}
	})
	t.Run("unstamped process", func(t *testing.T) {
		id = ""
		path := filepath.Join(t.TempDir(), "calico-ipam")
		if err := os.WriteFile(path, []byte(stamp("")), 0o755); err != nil {
			t.Fatal(err)
		}
		if Same(path) {
			t.Error("a process without an id has no same build")
		}
	})
}
