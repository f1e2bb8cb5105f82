package pair

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/test/pair/gate"
)

// broken is a host with a pod whose datastore file then cannot be used.
type broken struct {
	*host
	present, wanting *pod
	conf             config
}

func newBroken(t *testing.T) *broken {
	t.Helper()
	b := &broken{host: newHost(t), conf: newConfig().with("timeout_seconds", 2)}
	b.present, b.wanting = newPod(t, "present", ""), newPod(t, "wanting", "")
	b.add(t, b.present, b.conf)
	return b
}

// refuses runs a call of each changing verb; each must fail with the code and
// name the file, and leave the kernel alone.
func (b *broken) refuses(t *testing.T, code cnierr.Code, change func(call) call) {
	t.Helper()
	before := kernelState(t, "host", b.links)
	for _, c := range []call{b.wanting.verb(t, "ADD", b.conf), b.present.verb(t, "DEL", b.conf)} {
		b.run(t, change(c)).fails(t, code, datastoreFile)
	}
	if after := kernelState(t, "host", b.links); difference(before, after) != "" {
		t.Errorf("the host has changed:\n%s", difference(before, after))
	}
}

func asIs(c call) call { return c }

func TestEmbeddedFile(t *testing.T) {
	t.Parallel()
	t.Run("locked by another process", func(t *testing.T) {
		t.Parallel()
		b := newBroken(t)
		file, err := os.OpenFile(b.file(datastoreFile), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		b.refuses(t, cnierr.LockNotObtained, asIs)
		if waited := time.Since(begin); waited > 12*time.Second {
			t.Errorf("ADD and DEL took %v, with 2 s each", waited)
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_UN); err != nil {
			t.Fatal(err)
		}
		b.del(t, b.present, b.conf)
		b.nothingLeft(t)
	})
	t.Run("truncated", func(t *testing.T) {
		t.Parallel()
		b := newBroken(t)
		whole, err := os.ReadFile(b.file(datastoreFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, length := range []int{0, 100, len(whole) / 2} {
			if err := os.WriteFile(b.file(datastoreFile), whole[:length], 0o600); err != nil {
				t.Fatal(err)
			}
			b.refuses(t, cnierr.TryAgainLater, asIs)
			if now, err := os.ReadFile(b.file(datastoreFile)); err != nil || len(now) != length {
				t.Errorf("the damaged file has %d bytes, had %d: %v", len(now), length, err)
			}
		}
		if err := os.WriteFile(b.file(datastoreFile), whole, 0o600); err != nil {
			t.Fatal(err)
		}
		b.del(t, b.present, b.conf)
		b.nothingLeft(t)
	})
	t.Run("read-only disk", func(t *testing.T) {
		t.Parallel()
		b := newBroken(t)
		readOnly := func(c call) call {
			c.readOnly = true
			return c
		}
		b.refuses(t, cnierr.DatastoreRefused, readOnly)
		b.run(t, readOnly(hostVerb(t, "STATUS", b.conf))).fails(t, cnierr.NotAvailable, datastoreFile, "must be writable")
		b.run(t, hostVerb(t, "STATUS", b.conf)).succeeds(t)
		b.del(t, b.present, b.conf)
		b.nothingLeft(t)
	})
	t.Run("full disk", func(t *testing.T) {
		t.Parallel()
		b := newBroken(t)
		b.refuses(t, cnierr.TryAgainLater, func(c call) call {
			c.gated = []string{"pwrite64", "ftruncate"}
			c.decide = func(g gate.Call) unix.Errno {
				if strings.HasSuffix(g.Path, filepath.Base(datastoreFile)) {
					return unix.ENOSPC
				}
				return 0
			}
			return c
		})
		b.del(t, b.present, b.conf)
		b.nothingLeft(t)
	})
	t.Run("IPAM/50 the lock file's directory is unwritable", func(t *testing.T) {
		t.Parallel()
		h, p := newHost(t), newPod(t, "container", "")
		conf := newConfig().with("ipam_lock_file", "/proc/nowhere/ipam.lock")
		h.works(t, p, h.add(t, p, conf))
		h.del(t, p, conf)
		h.nothingLeft(t)
	})
}

// TestRepeatedAddFailing refuses every step of a repeated ADD, and of an ADD of
// a second interface.
func TestRepeatedAddFailing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		again func(*pod) *pod
	}{
		{"repeated ADD", func(p *pod) *pod { return p }},
		{"second interface", func(p *pod) *pod { return p.second("eth1") }},
	} {
		t.Run("Network/73 "+c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, identities[1])
			measured := s.pod(t, "measured")
			s.add(t, measured, s.c)
			taken, o := s.trace(t, c.again(measured).verb(t, "ADD", s.c))
			o.succeeds(t)
			s.del(t, c.again(measured), s.c)
			s.del(t, measured, s.c)
			for n := range taken {
				p := s.pod(t, "container-"+string(rune('a'+n/26))+string(rune('a'+n%26)))
				first := s.add(t, p, s.c)
				again := c.again(p).verb(t, "ADD", s.c)
				again.decide = failing(n, unix.EIO)
				o := s.run(t, again)
				held := s.objects(t).allocated(t)[p.handleID()]
				for _, address := range first.addresses() {
					if !strings.Contains(" "+strings.Join(held, " ")+" ", " "+address+" ") && s.linkByAlias(t, p.alias()) != nil {
						t.Errorf("address %s of the first interface is not held any more; held are %v", address, held)
					}
				}
				s.del(t, c.again(p), s.c)
				s.del(t, p, s.c)
				s.nothingLeft(t)
				if t.Failed() {
					t.Fatalf("refused at step %d of %d: %v; status %d: %s", n, len(taken), taken[n], o.status, o.failure.Msg)
				}
			}
		})
	}
}

// TestKilled kills ADD at every step; the next ADD works and DEL leaves
// nothing.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("IPAM/23 ADD killed at every step, "+who.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, who)
			taken := s.traceAdd(t)
			for n := range taken {
				p := s.pod(t, "container-"+string(rune('a'+n/26))+string(rune('a'+n%26)))
				adding := s.startStopped(t, p.verb(t, "ADD", s.c), at(n))
				if !adding.stops() {
					adding.wait(t).succeeds(t)
				} else {
					adding.kill(t)
				}
				if n%2 == 0 {
					r := s.add(t, p, s.c)
					for _, address := range r.addresses() {
						s.reaches(t, address)
					}
				}
				s.del(t, p, s.c)
				s.nothingLeft(t)
				if t.Failed() {
					t.Fatalf("ADD killed at step %d of %d: %v", n, len(taken), taken[n])
				}
			}
		})
	}
}

// TestDeadHandle is what an ADD leaves that was killed between its two writes
// on a datastore without transactions.
func TestDeadHandle(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/23 handle without address", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, identities[0])
		p := s.pod(t, sandboxA)
		s.put(t, objects{"/calico/ipam/v2/handle/" + p.handleID(): `{"handleID":"` + p.handleID() + `","block":{"10.77.0.0/26":1}}`})
		s.del(t, p, s.c)
		s.nothingLeft(t)
	})
	t.Run("IPAM/26 legacy handles", func(t *testing.T) {
		t.Parallel()
		for _, who := range identities {
			s := newScene(t, who)
			p := s.pod(t, sandboxA)
			s.add(t, p, s.c)
			legacy := p.container
			if who.kubernetes() {
				legacy = "shop.web-0"
			}
			renamed := objects{}
			for key, value := range s.objects(t).under("/ipam/v2/") {
				if strings.Contains(key+value, p.handleID()) {
					renamed[strings.ReplaceAll(key, p.handleID(), legacy)] = strings.ReplaceAll(value, p.handleID(), legacy)
				}
			}
			renamed["/calico/ipam/v2/handle/"+p.handleID()] = ""
			s.put(t, renamed)
			s.removeNotes(t)
			s.del(t, p, s.c)
			s.nothingLeft(t)
		}
	})
}

func TestParallelAdds(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/53 eight ADDs on a fresh node", func(t *testing.T) {
		t.Parallel()
		h, conf := newHost(t), ipv4Only()
		pods := make([]*pod, 8)
		running := make([]*process, len(pods))
		for i := range pods {
			pods[i] = newPod(t, strings.Repeat(string(rune('a'+i)), 12), "")
		}
		for i, p := range pods {
			running[i] = h.start(t, p.verb(t, "ADD", conf))
		}
		seen := map[string]bool{}
		results := make([]result, len(pods))
		for i := range pods {
			results[i] = running[i].wait(t).result(t)
			seen[results[i].addresses()[0]] = true
		}
		if len(seen) != len(pods) {
			t.Errorf("%d different addresses, want %d", len(seen), len(pods))
		}
		if blocks := h.objects(t).under("/ipam/v2/assignment/").keys(); len(blocks) != 1 {
			t.Errorf("there are %d blocks, want 1: %v", len(blocks), blocks)
		}
		for i, p := range pods {
			h.works(t, p, results[i])
			h.del(t, p, conf)
		}
		h.nothingLeft(t)
	})
}

// TestForeignRoute: somebody else's route to the address that IPAM gives next.
func TestForeignRoute(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run("Linux/22 Network/37 "+who.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, who)
			other := newPod(t, "other", "")
			s.add(t, other, s.c)
			link := s.linkByAlias(t, other.alias())
			p := s.pod(t, sandboxA)
			p.args = strings.TrimPrefix(who.args+";IP=10.77.0.200", ";")
			s.addRoute(t, link, "10.77.0.200")
			before := kernelState(t, "host", s.links)
			s.run(t, p.verb(t, "ADD", s.c)).fails(t, cnierr.NetlinkRefused, link.Attrs().Name, "other", "10.77.0.200")
			if after := kernelState(t, "host", s.links); difference(before, after) != "" {
				t.Errorf("the host has changed:\n%s", difference(before, after))
			}
			s.holds(t, p)
		})
	}
}
