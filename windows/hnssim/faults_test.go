package hnssim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"calico-cni/windows/hns"
)

func TestFaultsAndFindings(t *testing.T) {
	t.Parallel()
	t.Run("faults count calls", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		ran, ended := 0, Call{}
		e.Inject(Fault{Call: "CreateNetwork", Skip: 1, Times: 1, Code: 0x80070015, Delay: time.Second,
			During: func() { ran++ }, Afterwards: func() { ended = e.Calls()[len(e.Calls())-1] }})
		madeNetwork(t, s, bridge())
		_, err := s.CreateNetwork(deadline(t), overlay())
		wantCode(t, err, 0x80070015)
		_, err = s.CreateNetwork(deadline(t), overlay())
		wantCode(t, err, hns.NetworkNameInUse)
		if ran != 1 || ended.Name != "CreateNetwork" || ended.Err == nil || e.now() != time.Second {
			t.Errorf("ran %d times, ended with %+v, %v passed", ran, ended, e.now())
		}
	})
	t.Run("a failure after the work", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		e.Inject(Fault{Call: "CreateNetwork", Code: 0x80070015, After: true})
		_, err := s.CreateNetwork(deadline(t), bridge())
		wantCode(t, err, 0x80070015)
		if found, err := s.Networks(deadline(t)); err != nil || len(found) != 1 {
			t.Errorf("there are %v, %v", found, err)
		}
	})
	t.Run("a call whose process is dead does nothing", func(t *testing.T) {
		t.Parallel()
		_, s := host(t)
		ctx, cancel := context.WithCancel(deadline(t))
		cancel()
		if _, err := s.CreateNetwork(ctx, bridge()); err == nil {
			t.Error("no error")
		}
		if found, err := s.Networks(deadline(t)); err != nil || len(found) != 0 {
			t.Errorf("there are %v, %v", found, err)
		}
	})
	t.Run("changes outside the lock, and second names, are findings", func(t *testing.T) {
		t.Parallel()
		e := New()
		s := e.Service()
		e.Elsewhere(func() { madeNetwork(t, s, bridge()) })
		if found := e.Findings(); len(found) > 0 {
			t.Fatalf("findings %v", found)
		}
		networks, err := s.Networks(deadline(t))
		wantCode(t, err, 0)
		for i := range 2 {
			made := endpointOn(networks[0], fmt.Sprintf("10.48.5.%d", 70+i))
			made.Name = "one"
			_, err := s.CreateEndpoint(deadline(t), made)
			wantCode(t, err, 0)
		}
		if found := strings.Join(e.Findings(), "\n"); strings.Count(found, "outside the network lock") != 2 || !strings.Contains(found, "second endpoint has the name one") {
			t.Errorf("findings %s", found)
		}
	})
	t.Run("a boot and a restart", func(t *testing.T) {
		t.Parallel()
		e, s := host(t)
		n := madeNetwork(t, s, bridge())
		_, err := s.CreateEndpoint(deadline(t), endpointOn(n, "10.48.5.70"))
		wantCode(t, err, 0)
		e.Restart()
		if found, err := s.Endpoints(deadline(t)); err != nil || len(found) != 0 {
			t.Errorf("after a restart there are %v, %v", found, err)
		}
		e.Wipe()
		if found, err := s.Networks(deadline(t)); err != nil || len(found) != 0 {
			t.Errorf("after a boot there are %v, %v", found, err)
		}
	})
	t.Run("the lock", func(t *testing.T) {
		t.Parallel()
		e, _ := host(t)
		ctx, cancel := context.WithCancel(deadline(t))
		cancel()
		if _, err := e.Host().Lock(ctx); err == nil {
			t.Error("the lock was given twice")
		}
	})
	t.Run("every assumption has a reason", func(t *testing.T) {
		t.Parallel()
		for _, a := range Assumptions() {
			if a.Rule == "" || a.Reason == "" {
				t.Errorf("%+v", a)
			}
		}
	})
}
