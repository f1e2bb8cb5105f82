package ipam

import (
	"os"
	"strconv"
	"testing"
	"time"

	"calico-cni/pkg/datastore/memory"
)

// twoBlocks is a pool of two blocks of two addresses.
func twoBlocks(c *cluster) { c.pool("pods", "10.77.0.0/30", 31) }

// kinds are the kinds of store.
var kinds = map[string]memory.Options{"transactional": {}, "sequential": {NonTransactional: true}}

// twoHosts is the affinity state machine: two hosts, one mortal process each,
// two blocks of two addresses. With strict affinity the blocks are reclaimed,
// without it they are borrowed from. At the start there is no block or, owning,
// each host has one: an empty one to be reclaimed, a half full one to be
// borrowed from.
func twoHosts(options memory.Options, strict, owning bool) *automaton {
	hosts := []string{hostA, hostB}
	m := &automaton{
		options: options, mortal: true, races: 2,
		prepare: func(c *cluster) {
			twoBlocks(c)
			if strict {
				c.config(strictConfig)
			}
			for _, host := range hosts {
				if owning {
					c.give(host, "one-"+host, 1)
				}
				if owning && strict {
					if _, err := takeFrom(host, "one-"+host).run(c.ctx(), c.store, c.ipam); err != nil {
						c.Fatal(err)
					}
				}
			}
			c.clock.advance(time.Hour)
		},
	}
	for i, host := range hosts {
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
		for _, c := range []struct {
			name           string
			strict, owning bool
			reaches        []event
		}{
			{"strict, from nothing", true, false, []event{claimed, used, died}},
			{"strict, from an empty block each", true, true, []event{used, released, reclaimedBlock, died}},
			{"borrowing, from nothing", false, false, []event{claimed, used, died}},
			{"borrowing, from a half full block each", false, true, []event{used, released, borrowed, died}},
		} {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				m := twoHosts(options, c.strict, c.owning)
				m.begun = operations(t, options.NonTransactional)
				if found := m.explore(newCluster(t, options)); found != nil {
					t.Error(found)
				}
				t.Logf("%s: up to %d operations: %d states, %d transitions, %d contents of the datastore; %v",
					t.Name(), m.begun, m.states, m.transitions, len(m.recoverable), m.reached)
				for _, event := range c.reaches {
					if m.reached[event] == 0 && !testing.Short() {
						t.Errorf("no block is ever %s", event)
					}
				}
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
