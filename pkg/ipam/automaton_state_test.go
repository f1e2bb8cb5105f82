package ipam

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/memory"
	"calico-cni/pkg/model"
)

// word is a part of a state's text. Two states are the same if their texts
// are, with revisions numbered in the order in which they appear: all that is
// ever asked of a revision is whether it is another one's equal.
type word struct {
	text, path string
	revision   datastore.Revision
}

// standing is what a runtime knows of a container.
type standing struct {
	state containerState
	// addresses are what ADD returned.
	addresses []string
}

type containerState byte

const (
	unborn containerState = iota
	running
	// doubtful: ADD or DEL failed, was killed, or is at work.
	doubtful
)

// state is a state of the automaton.
type state struct {
	store      *memory.Store
	objects    *objectSet
	processes  []process
	containers map[string]standing
	happened   map[int]bool
	begun      int
	from       *state
	by         string
}

// objectSet is the content of the store.
type objectSet struct {
	affinities map[model.AffinityKey]*model.Affinity
	blocks     []*model.Block
	handles    map[string]*model.Handle
	pool       bool
	revisions  map[string]datastore.Revision
	text       []word
}

// look reads everything.
func look(store *memory.Store) *objectSet {
	answers, err := store.Competitor().Read(context.Background(),
		datastore.ListAffinities{Type: model.AffinityHost, Family: model.IPv4}, datastore.ListBlocks{Family: model.IPv4},
		datastore.ListHandles{}, datastore.ListResources{Kind: model.KindIPPool})
	if err != nil {
		panic(err) // the memory engine has refused a list
	}
	o := &objectSet{
		affinities: map[model.AffinityKey]*model.Affinity{}, handles: map[string]*model.Handle{},
		revisions: map[string]datastore.Revision{}, text: textOf(answers),
	}
	for _, answer := range answers {
		for _, entry := range answer.Entries {
			o.revisions[entry.Key.Path()] = entry.Revision
			switch value := entry.Value.(type) {
			case *model.Affinity:
				o.affinities[entry.Key.(model.AffinityKey)] = value
			case *model.Block:
				o.blocks = append(o.blocks, value)
			case *model.Handle:
				o.handles[entry.Key.(model.HandleKey).ID] = value
			case *model.IPPool:
				o.pool = true
			}
		}
	}
	return o
}

func (o *objectSet) block(key model.Key) *model.Block {
	for _, block := range o.blocks {
		if (model.BlockKey{CIDR: block.CIDR}) == key {
			return block
		}
	}
	return nil
}

func textOf(answers []datastore.Answer) (text []word) {
	for _, answer := range answers {
		for _, entry := range answer.Entries {
			text = append(text, entryText(entry)...)
		}
		text = append(text, word{text: "|"})
	}
	return text
}

// entryText leaves out what nothing depends on: sequence numbers, and objects
// that nobody changes.
func entryText(entry datastore.Entry) []word {
	path := entry.Key.Path()
	value := entry.Value
	switch v := value.(type) {
	case *model.Block:
		block := v.Clone()
		block.SequenceNumber, block.SequenceForAllocation = 0, nil
		value = block
	case *model.Affinity, *model.Handle, nil:
	case *model.IPPool:
		return []word{{text: path, path: path, revision: entry.Revision}}
	default:
		return nil
	}
	body := ""
	if value != nil {
		encoded, err := model.Encode(entry.Key, value)
		if err != nil {
			panic(err) // it was decoded from just that
		}
		body = string(encoded)
	}
	return []word{{text: path + body, path: path, revision: entry.Revision}}
}

// replyText is what a process learns from a reply.
func replyText(told reply) []word {
	text := append([]word{{text: string(rune('a' + told.pick))}}, textOf(told.answers)...)
	for _, key := range slices.SortedFunc(maps.Keys(told.written), byPath) {
		text = append(text, word{text: "+", path: key.Path(), revision: told.written[key]})
	}
	if told.err == nil {
		return text
	}
	text = append(text, word{text: told.err.Error()})
	if conflict, ok := told.err.(*datastore.ConflictError); ok {
		for _, key := range slices.SortedFunc(maps.Keys(conflict.Current), byPath) {
			text = append(text, entryText(conflict.Current[key])...)
		}
	}
	return text
}

func byPath(a, b model.Key) int { return strings.Compare(a.Path(), b.Path()) }

// digest tells states apart.
type digest [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func digestOf(text []byte) digest {
	return digest{maphash.Bytes(seeds[0], text), maphash.Bytes(seeds[1], text)}
}

// writer numbers revisions as they appear, for each object anew.
type writer struct {
	text    []byte
	numbers map[word]uint16
	count   map[string]uint16
}

func newWriter() *writer { return &writer{numbers: map[word]uint16{}, count: map[string]uint16{}} }

func (w *writer) add(words []word) {
	for _, one := range words {
		w.text = append(w.text, one.text...)
		if one.path == "" {
			continue
		}
		key := word{path: one.path, revision: one.revision}
		number, known := w.numbers[key]
		if !known {
			number = w.count[one.path]
			w.numbers[key], w.count[one.path] = number, number+1
		}
		w.text = binary.BigEndian.AppendUint16(append(w.text, '#'), number)
	}
}

// digest is the identity of the state.
func (s *state) digest() digest {
	w := newWriter()
	w.add(s.objects.text)
	w.text = append(w.text, byte(s.begun))
	for i := range s.processes {
		p := &s.processes[i]
		w.text = append(w.text, '\n', byte(p.operation+1), byte(p.lost))
		for _, told := range p.replies {
			w.add(told.text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.containers)) {
		one := s.containers[name]
		w.text = append(append(w.text, name...), byte(one.state))
		w.text = append(w.text, strings.Join(one.addresses, " ")...)
	}
	for _, i := range slices.Sorted(maps.Keys(s.happened)) {
		w.text = append(w.text, byte(i))
	}
	return digestOf(w.text)
}

// content is the identity of what is in the store.
func (s *state) content() digest {
	var text []byte
	for _, one := range s.objects.text {
		text = append(text, one.text...)
	}
	return digestOf(text)
}

// history tells how a state was reached.
func (s *state) history() string {
	var lines []string
	for ; s != nil; s = s.from {
		lines = append(lines, s.by)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}
