package contracttest

import (
	"context"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
)

// Planter is implemented by stores of engines that can be given raw values
// under the keys of etcd. For them the suite also tests odd data.
type Planter interface {
	Plant(path, value string)
}

// Run tests an engine. open returns an empty store; it is called once per
// test, and the tests run one after the other.
func Run(t *testing.T, open func(t *testing.T) datastore.Store) {
	for _, test := range tests() {
		t.Run(test.name, func(t *testing.T) {
			test.run(newFixture(t, open(t)))
		})
	}
}

type test struct {
	name string
	run  func(f *fixture)
}

func tests() []test {
	var all []test
	for _, group := range [][]test{readTests(), listTests(), writeTests(), batchTests(), concurrencyTests(), deadlineTests(), oddDataTests()} {
		all = append(all, group...)
	}
	return all
}

// fixture is a store under test, with calls that fail the test on an error.
type fixture struct {
	*testing.T
	store datastore.Store
	ctx   context.Context
}

func newFixture(t *testing.T, store datastore.Store) *fixture {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return &fixture{T: t, store: store, ctx: ctx}
}

func (f *fixture) read(queries ...datastore.Query) []datastore.Answer {
	f.Helper()
	answers, err := f.store.Read(f.ctx, queries...)
	if err != nil {
		f.Fatalf("Read(%v): %v", queries, err)
	}
	if len(answers) != len(queries) {
		f.Fatalf("Read of %d queries gave %d answers", len(queries), len(answers))
	}
	return answers
}

func (f *fixture) write(steps ...datastore.Step) datastore.Written {
	f.Helper()
	written, err := f.store.Write(f.ctx, steps...)
	if err != nil {
		f.Fatalf("Write: %v", err)
	}
	return written
}

// plant stores raw values; false if the engine cannot.
func (f *fixture) plant(values map[string]string) bool {
	planter, ok := f.store.(Planter)
	if ok {
		for path, value := range values {
			planter.Plant(path, value)
		}
	}
	return ok
}
