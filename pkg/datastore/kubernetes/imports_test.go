package kubernetes

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// tooDear are the packages whose types and schemes would cost every run of a
// plugin more than all requests it sends; a name stands for what is below it,
// too.
var tooDear = []string{
	"k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/client-go/dynamic", "k8s.io/client-go/informers",
	"k8s.io/client-go/kubernetes", "k8s.io/client-go/tools/cache", "sigs.k8s.io/controller-runtime",
}

// TestLinkedPackages: of Kubernetes' own libraries the executables link what
// reads credentials and makes transports, and no typed client.
func TestLinkedPackages(t *testing.T) {
	t.Parallel()
	for _, plugin := range []string{"calico", "calico-ipam"} {
		for _, system := range []string{"linux", "windows"} {
			linked := linkedPackages(t, system, "calico-cni/cmd/"+plugin)
			for _, name := range linked {
				if isBelow(name, tooDear) {
					t.Errorf("%s for %s links %s", plugin, system, name)
				}
			}
			for _, wanted := range []string{"k8s.io/client-go/rest", "k8s.io/client-go/tools/clientcmd"} {
				if !isBelow(wanted, linked) {
					t.Errorf("%s for %s does not link %s: is this the right list?", plugin, system, wanted)
				}
			}
		}
	}
}

func linkedPackages(t *testing.T, system, plugin string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", plugin)
	list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	var complaint strings.Builder
	list.Stderr = &complaint
	packages, err := list.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", list, err, complaint.String())
	}
	return strings.Fields(string(packages))
}

func isBelow(name string, roots []string) bool {
	for _, root := range roots {
		if name == root || strings.HasPrefix(name, root+"/") {
			return true
		}
	}
	return false
}
