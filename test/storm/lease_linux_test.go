package storm

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// lease is what a container does with an address: takes it, or gives it back.
type lease struct {
	address, container string
	gives              bool
}

// leases is the history of all addresses, as those saw it that called the
// plugin: an address was taken at some moment of the ADD that returned it, and
// given back at some moment between the begin of the first DEL and the end of
// the one that succeeded.
type leases []porcupine.Operation

func (l *leases) enter(lane int, what lease, begin, end time.Time) {
	*l = append(*l, porcupine.Operation{ClientId: lane, Input: what, Call: begin.UnixNano(), Return: end.UnixNano()})
}

// oneHolder is the model: an address is free, or one container has it.
var oneHolder = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byAddress := map[string][]porcupine.Operation{}
		for _, operation := range history {
			address := operation.Input.(lease).address
			byAddress[address] = append(byAddress[address], operation)
		}
		var parts [][]porcupine.Operation
		for _, part := range byAddress {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(holder, input, _ any) (bool, any) {
		what := input.(lease)
		if what.gives {
			return holder == what.container, ""
		}
		return holder == "", what.container
	},
	DescribeOperation: func(input, _ any) string {
		what := input.(lease)
		verb := map[bool]string{false: "takes", true: "gives back"}[what.gives]
		return fmt.Sprintf("%s %s %s", what.container, verb, what.address)
	},
}

// longestCheck bounds the search for an order of the history.
const longestCheck = time.Minute

// check demands that the history can be put into an order in which each
// address belongs to one container at a time.
func (l leases) check(t *testing.T) {
	t.Helper()
	if result := porcupine.CheckOperationsTimeout(oneHolder, l, longestCheck); result != porcupine.Ok {
		t.Errorf("the history of the addresses is %s:", result)
		for _, operation := range l {
			t.Logf("%d to %d: %s", operation.Call, operation.Return, oneHolder.DescribeOperation(operation.Input, nil))
		}
	}
}

// TestOneHolder: the model finds an address that two have.
func TestOneHolder(t *testing.T) {
	t.Parallel()
	at := func(millisecond int64) time.Time { return time.UnixMilli(millisecond) }
	var history leases
	history.enter(0, lease{"10.77.0.1", "one", false}, at(0), at(10))
	history.enter(1, lease{"10.77.0.2", "two", false}, at(0), at(10))
	history.enter(0, lease{"10.77.0.1", "one", true}, at(20), at(40))
	sound := append(leases(nil), history...)
	sound.enter(1, lease{"10.77.0.1", "two", false}, at(30), at(50))
	sound.check(t)
	history.enter(1, lease{"10.77.0.1", "two", false}, at(12), at(15))
	if porcupine.CheckOperations(oneHolder, history) {
		t.Error("an address with two holders at once is found in order")
	}
}
