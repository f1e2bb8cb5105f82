package ipam

import (
	"os"
	"strconv"
	"testing"

	"calico-cni/pkg/datastore/memory"
)

// twoBlocks is a pool of two blocks of two addresses.
func twoBlocks(c *cluster) { c.pool("pods", "10.77.0.0/30", 31) }

// kinds are the kinds of store.
var kinds = map[string]memory.Options{"transactional": {}, "sequential": {NonTransactional: true}}

// twoHosts is the affinity state machine: two hosts, one mortal process each,
// two blocks of two addresses. With strict affinity the blocks are reclaimed,
// without it they are borrowed from.
func twoHosts(options memory.Options, strict bool) *automaton {
	m := &automaton{
		options: options, mortal: true, races: 2,
		prepare: func(c *cluster) {
			twoBlocks(c)
			if strict {
				c.config(strictConfig)
			}
		},
	}
	for i, host := range []string{"worker-a", "worker-b"} {
		m.does(i, addTo(host, "one-"+host, 1), takeFrom(host, "one-"+host), addTo(host, "two-"+host, 2), takeFrom(host, "two-"+host), leave(host))
	}
	return m
}

func (m *automaton) does(process int, operations ...operation) {
	for _, o := range operations {
		m.operations, m.who = append(m.operations, o), append(m.who, process)
	}
}

// TestAutomaton explores all that two hosts can do.
func TestAutomaton(t *testing.T) {
	t.Parallel()
	for kind, options := range kinds {
		for affinity, strict := range map[string]bool{"strict": true, "borrowing": false} {
			t.Run(kind+"/"+affinity, func(t *testing.T) {
				t.Parallel()
				m := twoHosts(options, strict)
				m.begun = operations(t, options.NonTransactional)
				if found := m.explore(newCluster(t, options)); found != nil {
					t.Error(found)
				}
				t.Logf("up to %d operations: %d states, %d transitions, %d contents of the datastore", m.begun, m.states, m.transitions, len(m.recoverable))
			})
		}
	}
}

// operationsVariable asks for longer histories. Their number grows about
// fivefold with each operation, thirtyfold without transactions.
const operationsVariable = "AUTOMATON_OPERATIONS"

// operations is how many operations a history has, begun by whichever process.
func operations(t *testing.T, sequential bool) int {
	t.Helper()
	n := 2
	if text := os.Getenv(operationsVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("environment variable %s: %v", operationsVariable, err)
		}
	}
	if testing.Short() {
		n-- // the race detector is slow, and there is one goroutine
	}
	if sequential {
		return n
	}
	return 2*n - 1
}
