package kubernetes

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports: a client library of Kubernetes would cost every run of a plugin
// more than all requests it sends.
func TestImports(t *testing.T) {
	t.Parallel()
	packages, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(packages)) {
		if strings.HasPrefix(name, "k8s.io/") || strings.HasPrefix(name, "sigs.k8s.io/") {
			t.Errorf("%s is linked", name)
		}
	}
}
