//go:build unix

package installer

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// node is what a test takes for a container with the host's folders in it.
type node struct {
	layout Layout
	env    variables
	log    *lockedBuffer
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// knows is a plugin that knows these versions of CNI.
func knows(versions string) string {
	return "#!/bin/sh\necho '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[" + versions + "]}'\n"
}

var (
	newPlugin = knows(`"1.0.0","1.1.0"`)
	oldPlugin = knows(`"0.4.0","1.0.0"`)
)

// newNode is a node with an image of three plugins and nothing on the host.
func newNode(t *testing.T) *node {
	t.Helper()
	root := t.TempDir()
	n := &node{layout: Locate(Arguments{}, root), env: variables{"SLEEP": "false", "KUBERNETES_NODE_NAME": "node-1"}, log: &lockedBuffer{}}
	for _, directory := range append([]string{n.layout.From, n.layout.ConfDir}, n.layout.BinDirs[0]) {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, body := range map[string]string{"calico": newPlugin, "calico-ipam": newPlugin, "portmap": newPlugin, "install": newPlugin} {
		put(t, filepath.Join(n.layout.From, name), body, 0o755)
	}
	return n
}

func (n *node) installer(t *testing.T) *Installer {
	t.Helper()
	settings, err := ReadSettings(n.env.get, linuxHost)
	if err != nil {
		t.Fatal(err)
	}
	return &Installer{Settings: settings, Layout: n.layout, GOOS: "linux", Log: slog.New(slog.NewTextHandler(n.log, nil))}
}

func (n *node) run(t *testing.T) error {
	t.Helper()
	return n.installer(t).Run(t.Context())
}

func (n *node) installs(t *testing.T) {
	t.Helper()
	if err := n.run(t); err != nil {
		t.Fatal(err)
	}
}

// stays runs an installer that keeps running until the test ends.
func (n *node) stays(t *testing.T) {
	t.Helper()
	n.env["SLEEP"] = "true"
	in := n.installer(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Errorf("the installer that stayed: %v", err)
		}
	})
}

func (n *node) bin(name string) string  { return filepath.Join(n.layout.BinDirs[0], name) }
func (n *node) conf(name string) string { return filepath.Join(n.layout.ConfDir, name) }

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}
