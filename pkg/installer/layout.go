package installer

import (
	"path/filepath"
	"strings"
)

// Layout is where the installer finds and puts things, as paths that it can
// open. On the host they may have other names: Settings.NetDir.
type Layout struct {
	// From is the folder of the plugins to install.
	From string
	// BinDirs are the folders that plugins are installed into, each only if it
	// is writable.
	BinDirs []string
	// ConfDir is the folder of the configuration.
	ConfDir string
	// AccountDir holds the credentials of the pod that this process runs in.
	AccountDir string
	// Root is put before the paths that the environment names.
	Root string
}

// Arguments are the command's flags; what is empty has the default of a
// container.
type Arguments struct {
	From    string
	BinDirs []string
	ConfDir string
}

// Locate is the layout in a container. root is the folder that a process
// container on Windows sees its own files in, elsewhere empty (network plugin
// contract 11).
func Locate(arguments Arguments, root string) Layout {
	within := func(path string) string { return filepath.Join(root, path) }
	if root == "" {
		within = func(path string) string { return path }
	}
	layout := Layout{
		From:       within("/opt/cni/bin"),
		BinDirs:    []string{within("/host/opt/cni/bin"), within("/host/secondary-bin-dir")},
		ConfDir:    within("/host/etc/cni/net.d"),
		AccountDir: within("/var/run/secrets/kubernetes.io/serviceaccount"),
		Root:       root,
	}
	if arguments.From != "" {
		layout.From = arguments.From
	}
	if len(arguments.BinDirs) > 0 {
		layout.BinDirs = arguments.BinDirs
	}
	if arguments.ConfDir != "" {
		layout.ConfDir = arguments.ConfDir
	}
	return layout
}

// within is the path at which the container has a file that the environment
// names. A path with a drive is the host's.
func (l Layout) within(path string) string {
	if l.Root == "" || len(path) > 1 && path[1] == ':' {
		return path
	}
	return filepath.Join(l.Root, path)
}

func (l Layout) tokenFile() string  { return filepath.Join(l.AccountDir, "token") }
func (l Layout) kubeconfig() string { return filepath.Join(l.ConfDir, kubeconfigName) }
func (l Layout) tlsDir() string     { return filepath.Join(l.ConfDir, tlsName) }

// Names in the configuration's folder.
const (
	kubeconfigName = "calico-kubeconfig"
	tlsName        = "calico-tls"
)

// onHost is the host's path of a file in the configuration's folder, with the
// separator that the folder's own path has.
func (s Settings) onHost(names ...string) string {
	separator := "/"
	if strings.Contains(s.NetDir, `\`) {
		separator = `\`
	}
	return strings.Join(append([]string{s.NetDir}, names...), separator)
}
