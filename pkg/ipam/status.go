package ipam

import (
	"context"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
)

// probeRounds is how often STATUS may ask the datastore.
const probeRounds = 3

// Probe tells whether Assign would fulfil a request: it repeats the reads and
// the decision, writes nothing, and reads at most 3 times. If that was not
// enough to tell, everything near at hand is full, which is code 102.
func (a *Allocator) Probe(ctx context.Context, r Request) error {
	e := a.engine(r.Host)
	e.fetch = e.readPassing
	e.loadChecked()
	d := &assignment{request: &r, facts: e.facts, transactional: a.store.Transactional()}
	needs := AssignQueries(r)
	for range probeRounds {
		if err := e.fetch(ctx, needs...); err != nil {
			return err
		}
		next, err := d.foresee()
		if err != nil {
			return err
		}
		if needs = next.needs; len(needs) > 0 {
			continue
		}
		if d.refused != nil {
			return d.refused
		}
		return d.result.Err()
	}
	return cnierr.New(cnierr.AddressesExhausted, "no free address for host %s was found in %d looks at the datastore", r.Host, probeRounds)
}

// foresee decides as if what is to be written on the way had been written.
func (d *assignment) foresee() (decision, error) {
	for {
		next, err := d.decide()
		if err != nil || len(next.needs) > 0 || next.side.empty() {
			return next, err
		}
		d.facts.learnWritten(next.side, datastore.Written{})
	}
}
