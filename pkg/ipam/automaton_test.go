package ipam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// automaton explores everything that some processes can do on one datastore
// (IPAM contract 3): each may begin any of its operations at any time, has its
// requests served one at a time in any order with the others', and may die and
// be started again before each. The operations are the product's own; nothing
// here knows a rule of theirs.
type automaton struct {
	options memory.Options
	prepare func(c *cluster)
	// operations of all processes; who says which process has which.
	operations []operation
	who        []int
	// races bounds how many races one operation loses: there is no end to that
	// as long as others go on.
	races int
	// begun bounds how many operations a history has; 0: nothing does.
	begun int
	// mortal processes may die.
	mortal bool
	// shared: several processes may work for one container.
	shared bool
	// weaken takes guards away from a write of an operation.
	weaken func(o operation, at *objectSet, m datastore.Mutation) datastore.Mutation
	// demands are the properties to check; nil: all.
	demands []demand

	clock       *clock
	recoverable map[digest]bool
	reached     map[event]int
	states      int
	transitions int
}

// fault is a state that must not be.
type fault struct {
	what string
	at   *state
}

func (f *fault) Error() string {
	return f.what + ", after:\n" + f.at.history() + "\n" + f.at.store.Dump()
}

// explore visits every state, nearest first, and returns the first fault.
func (m *automaton) explore(c *cluster) *fault {
	m.clock, m.recoverable, m.reached = c.clock, map[digest]bool{}, map[event]int{}
	m.prepare(c)
	first := &state{store: c.store, objects: look(c.store), containers: m.standings(c.store), happened: map[int]bool{}}
	for range 1 + slices.Max(m.who) {
		first.processes = append(first.processes, process{operation: idle})
	}
	seen := map[digest]bool{first.digest(): true}
	for layer := []*state{first}; len(layer) > 0; {
		var next []*state
		for _, s := range layer {
			if found := m.judge(s); found != nil {
				return found
			}
			m.states++
			for _, after := range m.successors(s) {
				if after.broken != "" {
					return &fault{after.broken, after.state}
				}
				m.transitions++
				if id := after.digest(); !seen[id] {
					seen[id] = true
					next = append(next, after.state)
				}
			}
			s.store, s.processes, s.objects = nil, nil, nil // only its history is needed from now on
		}
		layer = next
	}
	return nil
}

// standings: who has an address in the beginning got it from an ADD.
func (m *automaton) standings(store *memory.Store) map[string]standing {
	out := map[string]standing{}
	objects := look(store)
	for _, o := range m.operations {
		if o.container == "" {
			continue
		}
		one := standing{}
		for _, block := range objects.blocks {
			for _, ordinal := range block.Held(o.container) {
				one.state = running
				one.addresses = append(one.addresses, block.Addr(ordinal).String())
			}
		}
		out[o.container] = one
	}
	return out
}

// successor is a state that follows, or the reason why it must not.
type successor struct {
	*state
	broken string
}

// successors are all states that one request, the beginning of an operation or
// a death leads to.
func (m *automaton) successors(s *state) (out []successor) {
	for i := range s.processes {
		p := &s.processes[i]
		if p.operation != idle {
			for pick := range max(1, len(p.asks.choices)) {
				out = append(out, m.serve(s, i, pick)...)
			}
			if m.mortal && p.leaves() {
				out = append(out, successor{state: m.die(s, i)})
			}
			continue
		}
		for at, o := range m.operations {
			if m.who[at] == i && (m.begun == 0 || s.begun < m.begun) && s.allows(at, o, m.shared) {
				begun := m.begin(s, i, at)
				for pick := range max(1, len(begun.processes[i].asks.choices)) {
					out = append(out, m.serve(begun, i, pick)...)
				}
			}
		}
	}
	return out
}

// allows: a runtime adds a container once, and deletes what may be there.
func (s *state) allows(at int, o operation, shared bool) bool {
	switch {
	case o.once && s.happened[at]:
		return false
	case shared || o.container == "":
		return true
	case o.kind == adding:
		return s.containers[o.container].state == unborn
	}
	return s.containers[o.container].state != unborn
}

// with is a copy of a state, with one process changed.
func (s *state) with(i int, p process, by string) *state {
	next := *s
	next.processes = slices.Clone(s.processes)
	next.processes[i] = p
	next.from, next.by = s, by
	return &next
}

func (s *state) stands(container string, is standing) {
	if container != "" {
		s.containers = maps.Clone(s.containers)
		s.containers[container] = is
	}
}

// begin starts an operation. Until its first request is served nothing is
// changed by it, so that this is no state of its own.
func (m *automaton) begin(s *state, i, at int) *state {
	p := process{operation: at}
	m.resume(&p)
	next := s.with(i, p, "")
	next.from, next.by = s.from, s.by
	if m.begun > 0 {
		next.begun++
	}
	next.stands(m.operations[at].container, standing{state: doubtful})
	if m.operations[at].once {
		next.happened = maps.Clone(s.happened)
		next.happened[at] = true
	}
	return next
}

func (m *automaton) die(s *state, i int) *state {
	m.reached[died]++
	return s.with(i, process{operation: idle}, fmt.Sprintf("process %d is killed", i))
}

// serve carries out one request of a process and lets it decide what is next.
func (m *automaton) serve(s *state, i, pick int) []successor {
	p := s.processes[i]
	o := m.operations[p.operation]
	store := s.store.Copy()
	told := m.answer(store, o, s.objects, p.asks, pick)
	told.text = replyText(told)
	lost := p.lost
	if _, conflict := told.err.(*datastore.ConflictError); conflict {
		if lost++; lost > m.races {
			return nil
		}
	}
	next := process{operation: p.operation, replies: append(slices.Clip(p.replies), told), lost: lost}
	addresses, ended, err := m.resume(&next)
	if ended {
		next = process{operation: idle}
	}
	after := s.with(i, next, fmt.Sprintf("process %d, %s: %s -> %v", i, o.name, p.asks, told.err))
	if after.store = store; len(p.asks.queries) == 0 {
		after.objects = look(store)
	}
	broken := m.broken(s, after, p, o)
	if ended && broken == "" {
		broken = m.finish(after, o, texts(addresses), err)
	}
	return []successor{{after, broken}}
}

// answer carries out a request. A block that is written is claimed long ago by
// the time that anyone looks at it, so that any empty one may be reclaimed.
func (m *automaton) answer(store *memory.Store, o operation, at *objectSet, asks request, pick int) reply {
	told := reply{pick: pick, asked: asks.only(pick)}
	ctx := context.Background()
	change := func(mutation datastore.Mutation) datastore.Mutation {
		if block, ok := mutation.Value.(*model.Block); ok && !block.ClaimTime.IsZero() {
			block = block.Clone()
			block.ClaimTime = m.clock.Now().Add(-time.Hour).Truncate(time.Second)
			mutation.Value = block
		}
		if m.weaken != nil {
			mutation = m.weaken(o, at, mutation)
		}
		return mutation
	}
	switch {
	case len(asks.queries) > 0:
		told.answers, told.err = store.Read(ctx, asks.queries...)
	case len(asks.choices) > 0:
		told.written, told.err = store.Write(ctx, datastore.Step{change(asks.choices[pick])})
	default:
		var steps []datastore.Step
		for _, step := range asks.steps {
			var changed datastore.Step
			for _, mutation := range step {
				changed = append(changed, change(mutation))
			}
			steps = append(steps, changed)
		}
		told.written, told.err = store.Write(ctx, steps...)
	}
	return told
}

// finish enters what came out of an operation into the runtime's book.
func (m *automaton) finish(after *state, o operation, addresses []string, err error) string {
	switch {
	case o.kind == adding && len(addresses) > 0:
		after.stands(o.container, standing{state: running, addresses: addresses})
	case o.kind == adding:
		after.stands(o.container, standing{state: unborn})
		if !m.shared && after.objects.handles[o.container] != nil {
			return fmt.Sprintf("%s failed and has left its handle: %v", o.name, err)
		}
	case err != nil && o.kind != foreignWork:
		return fmt.Sprintf("%s fails: %v", o.name, err)
	case o.kind == deleting:
		after.stands(o.container, standing{state: unborn})
	}
	return ""
}

// only is the request without those that were sent with it.
func (r request) only(pick int) request {
	if len(r.choices) > 0 {
		r.choices = r.choices[pick : pick+1]
	}
	return r
}
