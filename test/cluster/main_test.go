//go:build kubernetes && linux

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"calico-cni/test/cluster/isolated"
	"calico-cni/test/cluster/node"
	"calico-cni/test/kubetest"
)

// manifests are applied as they are.
var manifests = []string{
	"deploy/crds-v1.yaml", "deploy/rbac.yaml", "deploy/installer-rbac.yaml", "deploy/configmap.yaml", "deploy/daemonset.yaml",
}

// nodeNames are all that any test uses: the API server has to know the tokens
// of their kubelets when it starts.
var nodeNames = []string{"node-1", "node-2"}

// lab is what the tests share: they wipe it, and do not run in parallel.
type lab struct {
	*kubetest.Cluster
	cgroup string
	built  built
}

var shared lab

func TestMain(m *testing.M) {
	node.Main()
	os.Exit(isolated.Main(func() error { _, err := build(); return err }, func(cgroup string) int {
		if err := start(cgroup); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer shared.Close()
		return m.Run()
	}))
}

// start fills the lab with an API server that serves the nodes' network.
func start(cgroup string) error {
	executables, err := build()
	if err != nil {
		return err
	}
	if err := node.MakeNetwork(); err != nil {
		return err
	}
	options := kubetest.Options{Address: node.Gateway, Accounts: true}
	for _, name := range nodeNames {
		options.Users = append(options.Users, kubetest.User{Token: kubeletToken(name), Name: "system:node:" + name, Groups: []string{"system:nodes"}})
	}
	cluster, err := kubetest.Launch(options)
	if err != nil {
		return err
	}
	shared = lab{Cluster: cluster, cgroup: cgroup, built: executables}
	if err := shared.furnish(); err != nil {
		cluster.Close()
		return err
	}
	return nil
}

// furnish makes what docs/install.md tells to make once in a cluster.
func (l *lab) furnish() error {
	for _, manifest := range manifests {
		if err := l.Apply(manifest); err != nil {
			return err
		}
	}
	if err := l.authority("kube-system"); err != nil {
		return err
	}
	return l.prepareInstall()
}

func kubeletToken(name string) string { return name + "-token" }

// built says where the executables are that nodes get.
type built struct {
	// root is the module's folder.
	root string
	// image is the root folder of the installer's image.
	image string
	// workload is the root folder of the image of sandboxes and pods.
	workload string
	// kubernetes holds the programs of Kubernetes.
	kubernetes string
}

func (b built) program(name string) string { return filepath.Join(b.kubernetes, name) }

// archives are the images that nodes get.
func (b built) archives() []string { return []string{b.image + ".tar", b.workload + ".tar"} }

// build builds everything that is not up to date. The first time that needs
// the machine's network.
func build() (built, error) {
	root, err := kubetest.Root()
	if err != nil {
		return built{}, err
	}
	cache := filepath.Join(root, ".cache", "cluster")
	b := built{root: root, image: filepath.Join(cache, "install"), workload: filepath.Join(cache, "workload")}
	for _, program := range programs {
		path, err := kubetest.Binary(program)
		if err != nil {
			return built{}, err
		}
		b.kubernetes = filepath.Dir(path)
	}
	for _, arguments := range [][]string{
		{"scripts/image", b.image, "bin"},
		{"go", "tool", "-n", "go.etcd.io/etcd/server/v3"},
		{"go", "build", "-o", b.workload + node.Workload, "./test/cluster/workload"},
	} {
		command := exec.Command(arguments[0], arguments[1:]...)
		command.Dir = root
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := command.CombinedOutput(); err != nil {
			return built{}, fmt.Errorf("%v: %w\n%s", arguments, err, output)
		}
	}
	if err := node.WriteImage(b.image+".tar", installerImage, b.image, "/opt/cni/bin/install"); err != nil {
		return built{}, err
	}
	return b, node.WriteImage(b.workload+".tar", node.Image, b.workload, node.Workload)
}

// installerImage is the name that deploy/daemonset.yaml has.
const installerImage = "calico-cni:latest"
