package image

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"calico-cni/test/pair/gate"
)

// scene is a node on which an older installer has been, and a folder of
// plugins to install. They are small: it is about the order of things.
type scene struct {
	root   string
	launch string
	env    []string
	// old and new are what the node's files hold before and after, with their
	// modes; a file that is not in one of them is not there then.
	old, new map[string]string
}

func entry(mode fs.FileMode, content string) string { return fmt.Sprintf("%o %s", mode, content) }

func newScene(t *testing.T, launch string) *scene {
	t.Helper()
	s := &scene{root: t.TempDir(), launch: launch}
	const conf = `{"name":"n","cniVersion":"1.0.0","type":"calico","ipam":{"type":"calico-ipam"}}`
	s.old = map[string]string{
		"bin/calico": entry(0o755, "old calico"), "bin/calico-ipam": entry(0o755, "old calico-ipam"), "bin/portmap": entry(0o755, "same"),
		"net.d/10-calico.conflist": entry(0o644, "old configuration"),
		"net.d/calico-tls/etcd-ca": entry(0o600, "old authority"), "net.d/calico-tls/etcd-key": entry(0o600, "old key"),
	}
	s.new = map[string]string{
		"bin/calico": entry(0o755, "new calico"), "bin/calico-ipam": entry(0o755, "new calico-ipam"), "bin/portmap": entry(0o755, "same"),
		"net.d/20-pods.conflist":   entry(0o600, conf+"\n"),
		"net.d/calico-tls/etcd-ca": entry(0o600, "new authority"), "net.d/calico-tls/etcd-cert": entry(0o600, "new certificate"),
	}
	for name, what := range s.old {
		s.put(t, name, what)
	}
	for name, what := range map[string]string{
		"from/calico": "755 new calico", "from/calico-ipam": "755 new calico-ipam", "from/portmap": "755 same", "from/install": "755 installer",
		"secrets/etcd-ca": "600 new authority", "secrets/etcd-cert": "600 new certificate",
	} {
		s.put(t, name, what)
	}
	s.env = []string{
		"SLEEP=false", "CNI_CONF_NAME=20-pods.conflist", "CNI_NETWORK_CONFIG=" + conf,
		"TLS_ASSETS_DIR=" + filepath.Join(s.root, "secrets"), "KUBERNETES_NODE_NAME=node-1",
	}
	return s
}

func (s *scene) put(t *testing.T, name, what string) {
	t.Helper()
	var mode fs.FileMode
	number, content, _ := strings.Cut(what, " ")
	if _, err := fmt.Sscanf(number, "%o", &mode); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// node is what the node's files hold.
func (s *scene) node(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, folder := range []string{"bin", "net.d"} {
		for name := range strings.FieldsSeq(files(t, filepath.Join(s.root, folder))) {
			path := filepath.Join(s.root, folder, name)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found[folder+"/"+name] = entry(info.Mode().Perm(), string(body))
		}
	}
	return found
}

// install runs the installer and kills it at its n-th system call that opens
// or changes a file. It reports false if there is no such call.
func (s *scene) install(t *testing.T, n int) (killed bool) {
	t.Helper()
	calico, err := filepath.Abs(filepath.Join(built(t), "opt/cni/bin/calico"))
	if err != nil {
		t.Fatal(err)
	}
	watch, err := gate.New()
	if err != nil {
		t.Fatal(err)
	}
	host := filepath.Join(s.root, "host")
	command := exec.CommandContext(context.WithoutCancel(t.Context()), s.launch, "-root", host, "-gate", "3",
		"-calls", "openat,write,fchmod,fsync,renameat,unlinkat,copy_file_range", calico, "install",
		"-from", filepath.Join(s.root, "from"), "-bin-dir", filepath.Join(s.root, "bin"), "-conf-dir", filepath.Join(s.root, "net.d"))
	command.Env = s.env
	command.ExtraFiles = []*os.File{watch.Socket()}
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var said strings.Builder
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var seen, hit atomic.Int32
	served := make(chan error, 1)
	go func() {
		served <- watch.Serve(func(call gate.Call) unix.Errno {
			if int(seen.Add(1)) == n+1 {
				hit.Store(1)
				_ = command.Process.Kill() // it is there: it waits for this answer
				<-call.Ended
			}
			return 0
		})
	}()
	err = command.Wait()
	if gateErr := <-served; gateErr != nil {
		t.Fatal(gateErr)
	}
	if hit.Load() == 0 && err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	return hit.Load() == 1
}

// TestKilledInstaller kills the installer at each of its calls. The node then
// has each file as it was or as it shall be, and the next run does the rest.
func TestKilledInstaller(t *testing.T) {
	t.Parallel()
	launch := tool(t, "../pair/launch")
	changed := false
	for n := 0; ; n++ {
		s := newScene(t, launch)
		killed := s.install(t, n)
		for name, what := range s.node(t) {
			if strings.HasSuffix(name, ".tmp") && killed {
				changed = true
				continue
			}
			if what != s.old[name] && what != s.new[name] {
				t.Errorf("killed at call %d: %s is %q", n, name, what)
			}
		}
		if killed {
			s.install(t, -1)
		}
		s.complete(t, n)
		if !killed {
			if n < 20 || !changed {
				t.Errorf("it ended after %d calls, and never in the middle of a file: does this test still gate the right ones?", n)
			}
			return
		}
		if t.Failed() {
			return
		}
	}
}

// complete fails unless the node is as it shall be, and nothing is left over.
func (s *scene) complete(t *testing.T, n int) {
	t.Helper()
	found := s.node(t)
	for name, what := range s.new {
		if found[name] != what {
			t.Errorf("killed at call %d, then run again: %s is %q", n, name, found[name])
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("killed at call %d, then run again: %s is left over", n, name)
	}
}
