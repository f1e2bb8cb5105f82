package storm

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// crowd is how many pods come at once.
const crowd = 30

// TestParallel: many ADDs at once, of both kinds of workload, and many DELs.
func TestParallel(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{embedded, etcd, executed} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := newHostOf(t, kind)
			s := &storm{book: &book{host: h}}
			all := map[string][]action{}
			for i := range crowd {
				pod := ""
				if i%2 == 0 {
					pod = fmt.Sprintf("pod-%d", i)
				}
				c := s.newContainer(t, pod, nil)
				for _, verb := range []string{"ADD", "CHECK", "DEL"} {
					all[verb] = append(all[verb], action{verb: verb, container: c, ifName: "eth0"})
				}
			}
			s.together(t, all["ADD"])
			s.audit(t)
			s.together(t, all["CHECK"])
			s.together(t, append(all["DEL"], all["DEL"]...))
			h.nothingLeft(t)
		})
	}
}

// together carries out a batch and tells how long it took.
func (s *storm) together(t *testing.T, batch []action) {
	t.Helper()
	if t.Failed() {
		t.FailNow()
	}
	begin := time.Now()
	s.carryOut(t, batch)
	t.Logf("%d times %s at once: %v", len(batch), batch[0].verb, time.Since(begin).Round(time.Millisecond))
}

// TestSandboxRace: two sandboxes of one pod are added at once, because the
// runtime gave the first one up without stopping it. At most one works in the
// end; that one works in full, and both can be deleted.
func TestSandboxRace(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{embedded, etcd, executed} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			h := newHostOf(t, kind)
			s := &storm{book: &book{host: h}}
			for range number(t, roundsVariable, 3) {
				s.race(t)
			}
		})
	}
}

// race plays one such pair.
func (s *storm) race(t *testing.T) {
	t.Helper()
	pair := []*container{s.newContainer(t, "web", nil), s.newContainer(t, "web", nil)}
	outcomes := make([]outcome, len(pair))
	var group sync.WaitGroup
	for i, c := range pair {
		group.Go(func() {
			var err error
			if outcomes[i], err = s.host.execute(t, c.call("ADD", "eth0", s.host.conf)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	works := 0
	for i, c := range pair {
		if s.works(t, c, outcomes[i]) {
			works++
		}
	}
	if works != 1 {
		t.Errorf("%d of two sandboxes work: %v, %v", works, outcomes[0], outcomes[1])
	}
	for _, c := range pair {
		s.carryOut(t, []action{{verb: "DEL", container: c, ifName: "eth0"}})
	}
	s.host.nothingLeft(t)
}

// works reports whether a sandbox works after its ADD, which may have been
// overtaken, also without hearing of it.
func (s *storm) works(t *testing.T, c *container, o outcome) bool {
	t.Helper()
	if o.failure.Code != 0 {
		if o.failure.Code != overtaken {
			t.Errorf("ADD %s of two sandboxes at once %v\n%s", c.id, o, o.stderr)
		}
		return false
	}
	*c.attachment("eth0") = attachment{state: live, added: o}
	checked, err := s.host.execute(t, c.checkCall("eth0", s.host.conf))
	if err != nil {
		t.Error(err)
	}
	return checked.failure.Code == 0
}

// overtaken is the code of an ADD that met a newer sandbox of its pod.
const overtaken = 118
