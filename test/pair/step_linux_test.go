package pair

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"calico-cni/test/pair/gate"
)

// steps counts the gated calls of the plugin itself; those of a program that it
// executes are let through uncounted.
type steps struct {
	mutex sync.Mutex
	calls []gate.Call
}

// next adds a call and returns its number, counted from 0.
func (s *steps) next(c gate.Call) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.calls = append(s.calls, c)
	return len(s.calls) - 1
}

func (s *steps) all() []gate.Call {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]gate.Call(nil), s.calls...)
}

func own(c gate.Call) bool { return c.Process == "calico" || c.Process == "calico-ipam" }

// trace runs a call to its end and returns the steps it took.
func (h *host) trace(t *testing.T, c call) ([]gate.Call, outcome) {
	t.Helper()
	var s steps
	c.decide = func(call gate.Call) unix.Errno {
		if own(call) {
			s.next(call)
		}
		return 0
	}
	o := h.run(t, c)
	return s.all(), o
}

// stopped is a process that stops before one of its steps.
type stopped struct {
	*process
	reached, goOn, ended chan struct{}
	going                sync.Once
}

// startStopped starts a call that stops before the first step for which when
// holds; when is told the number of the step, counted from 0.
func (h *host) startStopped(t *testing.T, c call, when condition) *stopped {
	t.Helper()
	s := &stopped{reached: make(chan struct{}), goOn: make(chan struct{}), ended: make(chan struct{})}
	var mutex sync.Mutex
	count, done := 0, false
	reaches := func(call gate.Call) bool {
		mutex.Lock()
		defer mutex.Unlock()
		if done || !own(call) {
			return false
		}
		done = when(count, call)
		count++
		return done
	}
	c.decide = func(call gate.Call) unix.Errno {
		if reaches(call) {
			close(s.reached)
			<-s.goOn
		}
		return 0
	}
	s.process = h.start(t, c)
	t.Cleanup(s.proceed)
	gateDone := s.gateDone
	s.gateDone = make(chan error, 1)
	go func() {
		s.gateDone <- <-gateDone
		close(s.ended)
	}()
	return s
}

// await waits until the process has stopped.
func (s *stopped) await(t *testing.T) {
	t.Helper()
	if !s.stops() {
		o := s.process.wait(t)
		t.Fatalf("%s ended before the step at which it was to stop: status %d, %s", s.verb, o.status, o.stdout)
	}
}

// stops waits until the process has stopped or ended, and says which. Calls
// that wait for a lock ask for it again and again, so the number of steps is
// not always the same.
func (s *stopped) stops() bool {
	select {
	case <-s.reached:
		return true
	case <-s.ended:
		return false
	}
}

// proceed lets the process go on.
func (s *stopped) proceed() { s.going.Do(func() { close(s.goOn) }) }

// kill ends the process where it stands.
func (s *stopped) kill(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	s.proceed()
	if err := <-s.gateDone; err != nil {
		t.Fatal(err)
	}
}

// beside runs a call while the stopped process stands, and lets that one go on
// as soon as the call has ended or is seen to wait for a lock that the stopped
// one holds: asking to be woken when it is free, or asking again and again.
func (h *host) beside(t *testing.T, s *stopped, c call) outcome {
	t.Helper()
	defer s.proceed()
	const waiting = 5
	asked := map[string]int{}
	var mutex sync.Mutex
	c.decide = func(call gate.Call) unix.Errno {
		mutex.Lock()
		defer mutex.Unlock()
		if call.Name != "flock" || !own(call) {
			clear(asked)
			return 0
		}
		if asked[call.Path]++; call.Waits || asked[call.Path] == waiting {
			s.proceed()
		}
		return 0
	}
	return h.run(t, c)
}

// failing is a decision that refuses the n-th step.
func failing(n int, errno unix.Errno) gate.Decide {
	var count steps
	return func(call gate.Call) unix.Errno {
		if own(call) && count.next(call) == n {
			return errno
		}
		return 0
	}
}

// at is the condition of the n-th step.
func at(n int) condition {
	return func(step int, _ gate.Call) bool { return step == n }
}
