package etcdtest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	library "github.com/vishvananda/netns"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	startTimeout = 60 * time.Second
	askAgain     = 10 * time.Millisecond
)

// process is one run of a server.
type process struct {
	command *exec.Cmd
	output  bytes.Buffer
	exited  chan struct{}
}

// Stop kills the server, as a crash would. Its data stays.
func (s *Server) Stop() { s.kill() }

// Restart starts the server on its data and address, and waits until it serves.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
	if err := s.ready(); err != nil {
		t.Fatal(err)
	}
}

// Pause stops the server's process: its sockets stay open and never answer.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
	// The signal reaches one thread; the others stop a little later.
	var status syscall.WaitStatus
	pid := s.process.command.Process.Pid
	if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("pausing the etcd server: %v", err)
	}
}

// Resume ends a pause.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGCONT)
}

func (s *Server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.process.command.Process.Signal(signal); err != nil {
		t.Fatalf("sending %v to the etcd server: %v", signal, err)
	}
}

func (s *Server) kill() {
	if s.process == nil {
		return
	}
	_ = s.process.command.Process.Kill() // fails if it is gone, which is fine
	<-s.process.exited
}

// launch starts the process from a thread of its own: the kernel kills the
// child when the thread that started it ends, so that no server outlives the
// test binary, however that dies.
func (s *Server) launch() error {
	binary, err := serverBinary()
	if err != nil {
		return err
	}
	run := &process{command: exec.Command(binary, s.arguments()...), exited: make(chan struct{})}
	run.command.Stdout, run.command.Stderr = &run.output, &run.output
	run.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(run.exited)
		err := s.enter()
		if err == nil {
			err = run.command.Start()
		}
		started <- err
		if err == nil {
			_ = run.command.Wait() // killed, in the end
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting the etcd server: %w", err)
	}
	s.process = run
	return nil
}

// enter brings the calling thread, which ends with its goroutine, into the
// server's network.
func (s *Server) enter() error {
	if s.network == nil {
		return nil
	}
	return library.Set(s.network.Handle())
}

// answers asks a server in a network of its own, whose socket is a file.
func (s *Server) answers() bool {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return false
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = client.Get(ctx, "ready") // linearizable: there is a leader
	return err == nil
}

// ready waits until the server serves.
func (s *Server) ready() error {
	client := http.Client{Timeout: time.Second}
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		if s.network != nil {
			if s.answers() {
				return nil
			}
		} else if response, err := client.Get(s.metricsURL + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.process.exited:
			return fmt.Errorf("the etcd server ended: %s", &s.process.output)
		case <-time.After(askAgain):
		}
	}
	return fmt.Errorf("the etcd server does not serve after %v", startTimeout)
}
