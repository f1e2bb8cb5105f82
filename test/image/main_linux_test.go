package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// repository is the root of the module, seen from this package.
const repository = "../.."

var scratch string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "calico-cni-image-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// image makes the image's root folder on first use. bin/ is left alone if it
// holds this very source.
var image = sync.OnceValues(func() (string, error) {
	root := filepath.Join(scratch, "image")
	command := exec.Command("scripts/image", root, "bin")
	command.Dir = repository
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", command.Args, err, out)
	}
	return root, nil
})

func built(t *testing.T) string {
	t.Helper()
	root, err := image()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// tool builds an executable of the tests.
func tool(t *testing.T, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	return path
}
