package isolated

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// variable holds the name of the run's control groups, and so tells the
// process inside from the one that started it.
const variable = "CALICO_CNI_TEST_ISOLATED"

// Main runs the tests inside and returns the exit code. What needs the machine,
// as its network to build programs, is done by prepare before. The tests get
// the name of a control group that exists in every hierarchy.
func Main(prepare func() error, tests func(cgroup string) int) int {
	if cgroup := os.Getenv(variable); cgroup != "" {
		if err := furnish(); err != nil {
			return failed(err)
		}
		return tests(cgroup)
	}
	if err := prepare(); err != nil {
		return failed(err)
	}
	if err := removeAbandoned(); err != nil {
		return failed(err)
	}
	cgroup, err := ownName()
	if err != nil {
		return failed(err)
	}
	code := 1
	if err = MakeCgroup(cgroup); err == nil {
		code, err = inside(cgroup)
	}
	if err := errors.Join(err, RemoveCgroup(cgroup)); err != nil {
		return failed(err)
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// inside runs this executable again as the first process of the namespaces:
// with it die all others in them. It dies with this process.
func inside(cgroup string) (int, error) {
	runtime.LockOSThread() // the child dies when the thread that started it ends
	defer runtime.UnlockOSThread()
	executable, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("looking for the tests' executable: %w", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	command := exec.Command(executable, os.Args[1:]...)
	command.Env = append(os.Environ(), variable+"="+cgroup)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := command.Start(); err != nil {
		return 1, fmt.Errorf("starting the tests in namespaces of their own (root is needed): %w", err)
	}
	ended := make(chan struct{})
	defer close(ended)
	go passOn(signals, command.Process, ended)
	err = command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 1, fmt.Errorf("waiting for the tests: %w", err)
	}
	if code := command.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 1, nil // killed
}

// passOn ends the tests when this process is told to end. A time-out asks for
// the stacks of the goroutines first.
func passOn(signals <-chan os.Signal, tests *os.Process, ended <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			if s != syscall.SIGQUIT {
				s = syscall.SIGKILL
			}
			_ = tests.Signal(s) // fails if they have ended, which is fine
		case <-ended:
			return
		}
	}
}
