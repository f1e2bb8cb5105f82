package pair

import (
	"errors"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
)

// The sandboxes of one pod. Their first 11 characters differ, as those of real
// container ids do.
const (
	sandboxA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	sandboxB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// scene is a host with a network and who is put on it.
type scene struct {
	*host
	identity
	c config
}

// newScene makes the host and its datastore.
func newScene(t *testing.T, who identity) *scene {
	t.Helper()
	s := &scene{host: newHost(t), identity: who, c: newConfig()}
	s.warmUp(t)
	return s
}

// warmUp puts a pod on the network and takes it off, so that what is made once
// per host is there.
func (s *scene) warmUp(t *testing.T) {
	t.Helper()
	first := newPod(t, "first", "")
	s.add(t, first, s.c)
	s.del(t, first, s.c)
}

func (s *scene) pod(t *testing.T, container string) *pod {
	t.Helper()
	return newPod(t, container, s.args)
}

// sequence is a row of the table of linux-dataplane.md 9.1.
type sequence struct {
	name string
	run  func(*testing.T, *scene)
}

var sequences = []sequence{
	{"1 ADD A, ADD B, DEL A with, DEL A again without", lateDelete},
	{"2 ADD A, ADD B in the same netns, DEL A with", sameNamespace},
	{"3 ADD A, ADD B, DEL B, DEL A", deleteBoth},
	{"4 ADD A, DEL A, DEL A", deleteTwice},
	{"5 ADD B while DEL A runs, stopped at each of its steps", addDuringDelete},
	{"6 ADD A killed before its alias, ADD B or DEL A with", killedBeforeAlias},
	{"7 ADD A stopped before step 1, ADD B completes, ADD A goes on", lateAdd},
	{"8 ADD A stopped after step 3 or before its record write, ADD B completes, ADD A goes on", overtakenAdd},
	{"9 ADD B fails at each step", failingAdd},
	{"10 reference-made A, DEL A with, DEL A without, ADD B then DEL A", referenceMade},
	{"11 reference-made A and B in the same netns, our DEL A with", referenceSuccessor},
	{"12 ADD eth0, ADD eth1 of one sandbox, DEL eth1, DEL eth0", secondInterface},
	{"13 two containers with equal first 11 characters", equalPrefix},
	{"14 host end renamed by hand, ADD of another sandbox into the same netns", renamedHostEnd},
}

// TestSequences runs every sequence for both kinds of workload.
func TestSequences(t *testing.T) {
	t.Parallel()
	for _, s := range sequences {
		t.Run("Linux/36/"+s.name, func(t *testing.T) {
			t.Parallel()
			for _, who := range identities {
				t.Run(who.name, func(t *testing.T) {
					t.Parallel()
					s.run(t, newScene(t, who))
				})
			}
		})
	}
}

func lateDelete(t *testing.T, s *scene) {
	a, b := s.pod(t, sandboxA), s.pod(t, sandboxB)
	s.add(t, a, s.c)
	added := s.add(t, b, s.c)
	s.del(t, a, s.c)
	s.works(t, b, added)
	s.holds(t, a)
	s.run(t, a.verb(t, "DEL", s.c).withoutNetns()).succeeds(t)
	s.works(t, b, added)
	s.recordOf(t, b, added)
}

// recordOf demands that there is exactly one record, of this pod.
func (s *scene) recordOf(t *testing.T, p *pod, r result) {
	t.Helper()
	record := s.record(t).Spec
	if record.ContainerID != p.container {
		t.Errorf("the record names container %q, want %q", record.ContainerID, p.container)
	}
	for i, address := range r.addresses() {
		if i >= len(record.IPNetworks) || !strings.HasPrefix(record.IPNetworks[i], address+"/") {
			t.Errorf("the record has addresses %v, want %v", record.IPNetworks, r.addresses())
			break
		}
	}
}

// sameNamespace is possible for sandboxes of one Kubernetes pod. Containers of
// other runtimes are strangers to each other: the second one finds the name
// taken.
func sameNamespace(t *testing.T, s *scene) {
	a := s.pod(t, sandboxA)
	first := s.add(t, a, s.c)
	b := a.sandbox(sandboxB)
	if !s.kubernetes() {
		s.run(t, b.verb(t, "ADD", s.c)).fails(t, cnierr.NameTaken, "eth0", sandboxA)
		s.works(t, a, first)
		s.holds(t, b)
		return
	}
	second := s.add(t, b, s.c)
	s.del(t, a, s.c)
	s.works(t, b, second)
	s.recordOf(t, b, second)
	s.holds(t, a)
}

func deleteBoth(t *testing.T, s *scene) {
	a, b := s.pod(t, sandboxA), s.pod(t, sandboxB)
	s.add(t, a, s.c)
	s.add(t, b, s.c)
	s.del(t, b, s.c)
	s.del(t, a, s.c)
	s.nothingLeft(t)
}

func deleteTwice(t *testing.T, s *scene) {
	a := s.pod(t, sandboxA)
	s.add(t, a, s.c)
	s.del(t, a, s.c)
	s.del(t, a, s.c)
	s.nothingLeft(t)
}

// forget takes away what tells our attachments from the reference's: the alias
// and the note.
func (s *scene) forget(t *testing.T, p *pod) {
	t.Helper()
	link := s.linkByAlias(t, p.alias())
	if link == nil {
		t.Fatalf("no interface of the host is %s's", p.container)
	}
	if err := s.links.LinkSetAlias(link, ""); err != nil {
		t.Fatal(err)
	}
	s.removeNotes(t)
}

func referenceMade(t *testing.T, s *scene) {
	a := s.pod(t, sandboxA)
	s.add(t, a, s.c)
	s.forget(t, a)
	s.del(t, a, s.c)
	s.nothingLeft(t)

	a = s.pod(t, sandboxA)
	s.add(t, a, s.c)
	s.forget(t, a)
	before := kernelState(t, "host", s.links)
	s.run(t, a.verb(t, "DEL", s.c).withoutNetns()).succeeds(t)
	if after := kernelState(t, "host", s.links); strings.Join(before, "\n") != strings.Join(after, "\n") {
		t.Errorf("DEL without namespace changed the host:\n%s", difference(before, after))
	}
	s.del(t, a, s.c)

	a, b := s.pod(t, sandboxA), s.pod(t, sandboxB)
	s.add(t, a, s.c)
	s.forget(t, a)
	added := s.add(t, b, s.c)
	s.del(t, a, s.c)
	s.works(t, b, added)
	s.recordOf(t, b, added)
}

// referenceSuccessor: to other orchestrators two containers in one namespace
// are strangers; there the reference would have failed like us.
func referenceSuccessor(t *testing.T, s *scene) {
	a := s.pod(t, sandboxA)
	first := s.add(t, a, s.c)
	s.forget(t, a)
	b := a.sandbox(sandboxB)
	if !s.kubernetes() {
		s.run(t, b.verb(t, "ADD", s.c)).fails(t, cnierr.NameTaken, "eth0")
		s.holds(t, a, first.addresses()...)
		s.holds(t, b)
		return
	}
	second := s.add(t, b, s.c)
	s.forget(t, b)
	s.del(t, a, s.c)
	s.holds(t, a)
	s.holds(t, b, second.addresses()...)
	s.recordOf(t, b, second)
	for _, address := range second.addresses() {
		s.reaches(t, address)
	}
}

// secondInterface: other orchestrators have one endpoint per container; its
// second ADD networks nothing and repeats the recorded result.
func secondInterface(t *testing.T, s *scene) {
	eth0 := s.pod(t, sandboxA)
	eth1 := eth0.second("eth1")
	first := s.add(t, eth0, s.c)
	second := s.add(t, eth1, s.c)
	if !s.kubernetes() {
		if strings.Join(first.addresses(), " ") != strings.Join(second.addresses(), " ") {
			t.Errorf("the second ADD has addresses %v, the first %v", second.addresses(), first.addresses())
		}
		s.works(t, eth0, first)
	} else {
		s.holds(t, eth0, append(first.addresses(), second.addresses()...)...)
		for _, address := range append(first.addresses(), second.addresses()...) {
			s.reaches(t, address)
		}
	}
	s.recordOf(t, eth0, first)
	if s.linkByAlias(t, eth0.alias()) == nil {
		t.Error("the first interface is gone")
	}
	if s.kubernetes() {
		s.del(t, eth1, s.c)
		for _, address := range first.addresses() {
			s.reaches(t, address)
		}
		s.recordOf(t, eth0, first)
	}
	s.del(t, eth0, s.c)
	s.nothingLeft(t)
}

// equalPrefix is about container ids, so Kubernetes pods have names of their
// own here.
func equalPrefix(t *testing.T, s *scene) {
	a, b := s.pod(t, "cnitool-aaa111"), s.pod(t, "cnitool-aaa222")
	if s.kubernetes() {
		b.args = strings.Replace(b.args, "web-0", "web-1", 1)
	}
	first, second := s.add(t, a, s.c), s.add(t, b, s.c)
	s.works(t, a, first)
	s.works(t, b, second)
	s.del(t, a, s.c)
	s.works(t, b, second)
	s.holds(t, a)
	s.del(t, b, s.c)
	s.nothingLeft(t)
}

func renamedHostEnd(t *testing.T, s *scene) {
	a := s.pod(t, sandboxA)
	first := s.add(t, a, s.c)
	link := s.linkByAlias(t, a.alias())
	if link == nil {
		t.Fatal("the host end has no alias")
	}
	// Not every kernel renames an interface that is up.
	if err := errors.Join(s.links.LinkSetDown(link), s.links.LinkSetName(link, "renamed0"), s.links.LinkSetUp(link)); err != nil {
		t.Fatal(err)
	}
	b := a.sandbox(sandboxB)
	s.run(t, b.verb(t, "ADD", s.c)).fails(t, cnierr.NameTaken, "renamed0", sandboxA)
	s.holds(t, a, first.addresses()...)
	s.holds(t, b)
	if s.linkByAlias(t, a.alias()) == nil {
		t.Error("the first sandbox's interface is gone")
	}
}
