package wine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Where Debian's package has Wine.
const (
	wineBinary   = "/usr/lib/wine/wine64"
	serverBinary = "/usr/lib/wine/wineserver"
)

// bootTime bounds the making of a prefix.
const bootTime = 3 * time.Minute

// Host is a prefix of Wine: a machine with Windows on it.
type Host struct {
	prefix string
}

// NewHost makes a machine with this build of Windows, with the pair and the
// DLLs. It is gone when the test ends.
func NewHost(t testing.TB, build int) *Host {
	t.Helper()
	base := basePrefix(t)
	prefix, err := os.MkdirTemp(filepath.Dir(base), "run-")
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{prefix: prefix}
	t.Cleanup(func() { h.remove(t) })
	if out, err := exec.CommandContext(t.Context(), "cp", "-al", base+"/.", prefix).CombinedOutput(); err != nil {
		t.Fatalf("copying the prefix: %v\n%s", err, out)
	}
	h.unlinkRegistry(t)
	h.install(t)
	h.setBuild(t, build)
	h.preferDLLs(t)
	h.startServer(t)
	return h
}

// Path is where a file of drive C: lies, given with slashes.
func (h *Host) Path(name string) string {
	return filepath.Join(h.prefix, "drive_c", filepath.FromSlash(name))
}

// NewFile is a path on drive C: at which nothing is yet.
func (h *Host) NewFile(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp(h.prefix+"/drive_c", "new-")
	if err != nil {
		t.Fatal(err)
	}
	return `C:\` + filepath.Base(folder) + `\file`
}

// root is the repository's.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// cache is the folder of what is made once.
func cache(t testing.TB) string {
	t.Helper()
	folder := filepath.Join(root(), ".cache", "wine")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// lockCache keeps other runs of tests from making the same.
func lockCache(t testing.TB) (unlock func()) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(cache(t), "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { lock.Close() }
}

// basePrefix makes the first prefix once; others are copies of it.
func basePrefix(t testing.TB) string {
	t.Helper()
	defer lockCache(t)()
	base := filepath.Join(cache(t), "prefix")
	if _, err := os.Stat(base); err == nil {
		return base
	}
	half := base + ".half"
	if err := os.RemoveAll(half); err != nil {
		t.Fatal(err)
	}
	h := &Host{prefix: half}
	ctx, cancel := context.WithTimeout(t.Context(), bootTime)
	defer cancel()
	if out, err := h.command(ctx, wineBinary, "wineboot", "-i").CombinedOutput(); err != nil {
		t.Fatalf("wineboot: %v\n%s", err, out)
	}
	h.endServer(t)
	if err := os.Rename(half, base); err != nil {
		t.Fatal(err)
	}
	return base
}

// command is a program of Wine's for this prefix.
func (h *Host) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, args...)
	command.Env = []string{"WINEPREFIX=" + h.prefix, "WINEDEBUG=-all", "HOME=" + h.prefix, "PATH=" + os.Getenv("PATH"),
		"WINEDLLOVERRIDES=mscoree=;mshtml=;winemenubuilder.exe=d"}
	command.WaitDelay = 10 * time.Second
	return command
}

// endServer ends the prefix's server and waits for it.
func (h *Host) endServer(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bootTime)
	defer cancel()
	// Without a server there is nothing to end, and that is an error of its own.
	_ = h.command(ctx, serverBinary, "-k").Run()
	if err := h.command(ctx, serverBinary, "-w").Run(); err != nil {
		t.Errorf("waiting for Wine's server to end: %v", err)
	}
}

func (h *Host) remove(t testing.TB) {
	h.endServer(t)
	if err := os.RemoveAll(h.prefix); err != nil {
		t.Errorf("removing the prefix: %v", err)
	}
}

// unlinkRegistry gives the prefix a registry of its own: the other files are
// links to the first prefix's, and are never written.
func (h *Host) unlinkRegistry(t testing.TB) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.prefix, "*.reg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the prefix has no registry: %v", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err == nil {
			err = errors.Join(os.Remove(file), os.WriteFile(file, content, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// setBuild makes Wine the given build of Windows Server. The registry's files
// are text, and nothing of the prefix runs yet.
func (h *Host) setBuild(t testing.TB, build int) {
	t.Helper()
	h.editRegistry(t, "system.reg", `[Software\\Microsoft\\Windows NT\\CurrentVersion]`, map[string]string{
		"CurrentVersion": "10.0", "CurrentBuildNumber": fmt.Sprint(build), "CurrentBuild": fmt.Sprint(build),
	})
	h.editRegistry(t, "system.reg", `[System\\CurrentControlSet\\Control\\ProductOptions]`, map[string]string{"ProductType": "ServerNT"})
	h.editRegistry(t, "user.reg", `[Software\\Wine]`, map[string]string{"Version": ""})
}

// preferDLLs makes the plugin, and no program of Wine's own, load our DLLs.
func (h *Host) preferDLLs(t testing.TB) {
	t.Helper()
	path := filepath.Join(h.prefix, "user.reg")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, program := range []string{"calico.exe", testProgram, trialProgram} {
		fmt.Fprintf(file, "\n[Software\\\\Wine\\\\AppDefaults\\\\%s\\\\DllOverrides]\n", program)
		for _, name := range forwarding() {
			fmt.Fprintf(file, "%q=\"native\"\n", name)
		}
	}
}

// startServer starts the prefix's server, which then stays: a program that
// finds none takes half a second more. The first program also waits for what
// Wine starts of its own.
func (h *Host) startServer(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bootTime)
	defer cancel()
	// Its output is not waited for: the server keeps it open.
	if err := h.command(ctx, serverBinary, "-p").Run(); err != nil {
		t.Fatalf("starting Wine's server: %v", err)
	}
	if got := h.Run(ctx, t, Call{Plugin: "calico", Args: []string{"-v"}}); got.Exit != 0 {
		t.Fatalf("calico.exe -v: exit %d\n%s", got.Exit, got.Stderr)
	}
}

// editRegistry sets values of a key; an empty one is removed.
func (h *Host) editRegistry(t testing.TB, name, key string, values map[string]string) {
	t.Helper()
	path := filepath.Join(h.prefix, name)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	in := false
	for _, line := range strings.Split(string(content), "\n") {
		if strings.HasPrefix(line, "[") {
			in = strings.HasPrefix(line, key)
		}
		value, isValue := strings.CutPrefix(line, `"`)
		valueName, _, _ := strings.Cut(value, `"`)
		if _, replaced := values[valueName]; in && isValue && replaced {
			continue
		}
		out = append(out, line)
		if in && strings.HasPrefix(line, "#time=") {
			for name, value := range values {
				if value != "" {
					out = append(out, fmt.Sprintf("%q=%q", name, value))
				}
			}
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(out, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// install puts the pair and the DLLs where Windows has them.
func (h *Host) install(t testing.TB) {
	t.Helper()
	for name, from := range map[string]string{"k/cni": filepath.Join(root(), "dist", "windows-amd64"), "windows/system32": libraries(t)} {
		if err := os.MkdirAll(h.Path(name), 0o755); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(from)
		if err != nil {
			t.Fatalf("%v: build it with GOOS=windows scripts/build dist/windows-amd64", err)
		}
		for _, file := range files {
			copyFile(t, filepath.Join(from, file.Name()), filepath.Join(h.Path(name), file.Name()))
		}
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		if err = os.Remove(to); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.WriteFile(to, content, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
