package gate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// child names the file that the test binary locks, behind a gate, when it is
// executed again as the gated process.
const child = "CALICO_CNI_GATED_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(child); path != "" {
		os.Exit(lockBehindGate(path))
	}
	os.Exit(m.Run())
}

// lockBehindGate prints what the kernel answers to one flock.
func lockBehindGate(path string) int {
	runtime.LockOSThread()
	if err := Install(3, []string{"flock"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	file, err := os.Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Print(errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK))
	return 0
}

// gated runs the child with a decision and returns what it printed.
func gated(t *testing.T, path string, decide Decide) string {
	t.Helper()
	g, err := New()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), child+"="+path)
	cmd.ExtraFiles = []*os.File{g.Socket()}
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Serve(decide); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	return out.String()
}

func TestGate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var calls []string
	through := func(c Call) unix.Errno {
		calls = append(calls, c.Name+" "+c.Path)
		return 0
	}
	if out := gated(t, path, through); out != "false" {
		t.Errorf("let through, the child prints %q", out)
	}
	if want := "flock " + path; len(calls) != 1 || calls[0] != want {
		t.Errorf("the calls are %q, want one: %q", calls, want)
	}
	if out := gated(t, path, func(Call) unix.Errno { return unix.EWOULDBLOCK }); out != "true" {
		t.Errorf("refused, the child prints %q", out)
	}
}

// TestGateHolds: while the decision is open, the lock is not taken.
func TestGateHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := gated(t, path, func(Call) unix.Errno {
		// The child would fail to lock if it were not held here.
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Errorf("the held child has locked already: %v", err)
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_UN); err != nil {
			t.Error(err)
		}
		return 0
	})
	if out != "false" {
		t.Errorf("let go, the child prints %q", out)
	}
}

func TestInstallRefusesUnknownCalls(t *testing.T) {
	if err := Install(-1, []string{"reboot"}); err == nil {
		t.Error("a call that nobody described can be gated")
	}
}
