package isolated

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// way tells this executable to play a run of tests that ends that way.
	way = "CALICO_CNI_TEST_WAY"
	// mark tells the processes of one such run from all others.
	mark = "CALICO_CNI_TEST_MARK"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(way); how != "" {
		os.Exit(Main(func() error { return nil }, func(cgroup string) int { return messy(cgroup, how) }))
	}
	os.Exit(m.Run())
}

// messy makes what tests make and removes nothing.
func messy(cgroup, how string) int {
	left := exec.Command("sleep", "infinity")
	left.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID}
	err := left.Start()
	if err == nil {
		err = MakeCgroup(filepath.Join(cgroup, "node"))
	}
	mounts, _ := hierarchies()
	for _, mount := range mounts {
		if err == nil {
			err = os.WriteFile(filepath.Join(mount, cgroup, "node", "cgroup.procs"), fmt.Append(nil, left.Process.Pid), 0o644)
		}
	}
	if err == nil {
		err = unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "")
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready", cgroup)
	switch how {
	case "panics":
		panic("on purpose")
	case "fails":
		return 3
	}
	select {} // until it is killed
}

// run is a run of messy tests.
type run struct {
	*exec.Cmd
	lines  *bufio.Scanner
	cgroup string
	mark   string
}

func start(t *testing.T, how string) *run {
	t.Helper()
	r := &run{Cmd: exec.Command("/proc/self/exe"), mark: fmt.Sprintf("%s=%s-%d", mark, how, os.Getpid())}
	r.Env = append(os.Environ(), way+"="+how, r.mark)
	output, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Process.Kill(); _ = r.Wait() })
	r.lines = bufio.NewScanner(output)
	if r.lines.Scan(); !strings.HasPrefix(r.lines.Text(), "ready ") {
		t.Fatalf("the run says %q", r.lines.Text())
	}
	_, r.cgroup, _ = strings.Cut(r.lines.Text(), " ")
	return r
}

// processes counts those of the run that are alive.
func (r *run) processes(t *testing.T) int {
	t.Helper()
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range environments {
		text, err := os.ReadFile(file)
		if err == nil && bytes.Contains(text, []byte(r.mark)) {
			count++
		}
	}
	return count
}

// gone waits until the kernel has ended the run's processes.
func (r *run) gone(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(removeTimeout); r.processes(t) > 0; time.Sleep(tryAgain) {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes are still alive", r.processes(t))
		}
	}
}

func TestNothingIsLeft(t *testing.T) {
	before := mounted(t)
	for how, test := range map[string]struct {
		signal syscall.Signal
		code   int
	}{
		"fails":          {code: 3},
		"panics":         {code: 2},
		"is interrupted": {signal: syscall.SIGINT, code: 1},
		"is terminated":  {signal: syscall.SIGTERM, code: 1},
		"takes too long": {signal: syscall.SIGQUIT, code: 2},
	} {
		t.Run(how, func(t *testing.T) {
			r := start(t, how)
			if r.processes(t) < 3 && test.signal != 0 {
				t.Errorf("%d processes, want both of the run and the one left", r.processes(t))
			}
			if test.signal != 0 {
				if err := r.Process.Signal(test.signal); err != nil {
					t.Fatal(err)
				}
			}
			if _ = r.Wait(); r.ProcessState.ExitCode() != test.code {
				t.Errorf("%v, want exit code %d", r.ProcessState, test.code)
			}
			if left := r.processes(t); left != 0 {
				t.Errorf("%d processes are left", left)
			}
			if exists(t, r.cgroup) != 0 {
				t.Error("control groups are left")
			}
		})
	}
	t.Run("is killed", func(t *testing.T) {
		r := start(t, "is killed")
		if err := r.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = r.Wait()
		r.gone(t)
		next := start(t, "fails") // which tidies up first
		if exists(t, r.cgroup) != 0 {
			t.Error("the next run leaves the control groups")
		}
		_ = next.Wait()
	})
	if after := mounted(t); after != before {
		t.Errorf("%d mounts on /mnt, were %d before", after, before)
	}
}

// mounted counts the mounts where messy mounts.
func mounted(t *testing.T) int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(mounts), " /mnt ")
}
