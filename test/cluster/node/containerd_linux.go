package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

const (
	// Image is what sandboxes and the tests' pods are made of.
	Image = "localhost/workload:1"
	// Workload is its only program.
	Workload = "/workload"

	containerdSocket = "/run/containerd/containerd.sock"
	containerdConfig = "/etc/containerd-test.toml"
)

// containerdText configures Debian's containerd 1.6 as it comes, but for what a
// process in a test's namespaces must not do: raise its priority to survive.
const containerdText = `version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + Image + `"
  restrict_oom_score_adj = true
`

// StartContainerd runs containerd with these images until the node ends.
func (n *Node) StartContainerd(t testing.TB, archives ...string) *Runtime {
	t.Helper()
	if err := os.WriteFile(n.File(containerdConfig), []byte(containerdText), 0o644); err != nil {
		t.Fatal(err)
	}
	n.hangUp()
	n.Containerd = n.start(t, "containerd", "--config", containerdConfig)
	runtime, err := dial(n)
	if err != nil {
		t.Fatal(err)
	}
	n.runtime = runtime
	n.Containerd.await(t, "waiting for containerd of "+n.Name, func() error {
		_, err := runtime.version(context.Background())
		return err
	})
	for _, archive := range archives {
		n.importImage(t, archive)
	}
	return runtime
}

// hangUp ends the connection with a containerd that is gone, or soon will be.
func (n *Node) hangUp() {
	if n.runtime != nil {
		_ = n.runtime.connection.Close() // nothing is under way
		n.runtime = nil
	}
}

func (n *Node) importImage(t testing.TB, archive string) {
	t.Helper()
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join("/run", filepath.Base(archive))
	if err := os.WriteFile(n.File(at), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Run("ctr", "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", at); err != nil {
		t.Fatal(err)
	}
}

// Install copies executables into the node's folder for CNI plugins.
func (n *Node) Install(t testing.TB, executables ...string) {
	t.Helper()
	if err := os.MkdirAll(n.File("/opt/cni/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, executable := range executables {
		text, err := os.ReadFile(executable)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.File("/opt/cni/bin/"+filepath.Base(executable)), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// Write puts a file on the node.
func (n *Node) Write(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.File(path)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.File(path), []byte(text), mode); err != nil {
		t.Fatal(fmt.Errorf("writing %s on %s: %w", path, n.Name, err))
	}
}
