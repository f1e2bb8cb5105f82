//go:build linux

package main

import (
	"fmt"
	"path/filepath"

	"calico-cni/test/bench/runner/job"
	"calico-cni/test/kubetest"
)

// warmUps are runs that are not counted.
const warmUps = 3

// verbs measures single processes. All kinds take turns, so that what else the
// machine does falls on all of them alike.
func verbs(s *stage) ([]row, error) {
	rounds := []func(*book) error{s.startUps, s.links}
	for _, e := range s.engines {
		if err := s.resident(e); err != nil {
			return nil, err
		}
		rounds = append(rounds, s.pair(e), s.ipam(e))
	}
	var counted book
	for i := range warmUps + s.runs {
		for _, round := range rounds {
			if err := round(&counted); err != nil {
				return nil, err
			}
		}
		if i == warmUps-1 {
			counted.forget()
		}
	}
	s.empty = counted.rows[0]
	rows := make([]row, len(counted.rows))
	for i, r := range counted.rows {
		if r != s.empty {
			r.floor = s.empty
		}
		rows[i] = *r
	}
	return rows, nil
}

// resident adds a pod that stays: the node's block is never emptied.
func (s *stage) resident(e engine) error {
	p, err := s.newPod(e, node)
	if err != nil {
		return err
	}
	add, err := s.command(call{plugin: "calico", verb: "ADD", engine: e, node: node, pod: p})
	if err != nil {
		return err
	}
	_, err = s.execute(add)
	return err
}

// book collects samples under the verb and engine of their row.
type book struct{ rows []*row }

func (b *book) add(verb, engine string, taken sample) {
	for _, r := range b.rows {
		if r.verb == verb && r.engine == engine {
			r.samples = append(r.samples, taken)
			return
		}
	}
	b.rows = append(b.rows, &row{verb: verb, engine: engine, samples: []sample{taken}})
}

// forget keeps the rows in their order, and no sample.
func (b *book) forget() {
	for _, r := range b.rows {
		r.samples = nil
	}
}

// startUps is the floor of all, a request to each server alone, and our start.
func (s *stage) startUps(b *book) error {
	type start struct {
		what, engine string
		command      job.Command
	}
	tool := func(name string, arguments ...string) job.Command {
		return job.Command{Path: filepath.Join(s.tools, name), Arguments: arguments}
	}
	starts := []start{{"floor: empty program", "", tool("empty")}}
	for _, e := range s.engines {
		switch e := e.(type) {
		case *etcdServer:
			starts = append(starts, start{"floor: one RPC", etcd, tool("rpc", e.server.Endpoint)})
		case *apiServer:
			starts = append(starts, start{"floor: one request", e.title, tool("request", e.url, e.authority, kubetest.AdminToken)})
		}
	}
	for _, name := range []string{"calico", "calico-ipam"} {
		starts = append(starts, start{name + " -v", "", job.Command{Path: filepath.Join(s.plugins, name), Arguments: []string{"-v"}}})
	}
	for _, one := range starts {
		outcome, err := s.execute(one.command)
		if err != nil {
			return err
		}
		b.add(one.what, one.engine, uncounted(outcome))
	}
	return nil
}

// links is what the kernel takes for a pod's links alone.
func (s *stage) links(b *book) error {
	bare := embeddedFile{} // nothing asks for a datastore
	p, err := s.newPod(bare, node)
	if err != nil {
		return err
	}
	for _, what := range []string{"add", "del"} {
		outcome, err := s.execute(job.Command{Path: filepath.Join(s.tools, "veth"), Arguments: []string{what, p.path()}})
		if err != nil {
			return err
		}
		b.add("floor: veth "+what, "", uncounted(outcome))
	}
	return removePods(bare, p)
}

// pair is ADD and DEL of a pod by both plugins.
func (s *stage) pair(e engine) func(*book) error {
	return func(b *book) error { return s.life(b, e, "calico", "") }
}

// ipam is the same of the IPAM plugin alone.
func (s *stage) ipam(e engine) func(*book) error {
	return func(b *book) error { return s.life(b, e, "calico-ipam", "calico-ipam ") }
}

func (s *stage) life(b *book, e engine, plugin, prefix string) error {
	p, err := s.newPod(e, node)
	if err != nil {
		return err
	}
	for _, verb := range []string{"ADD", "DEL"} {
		command, err := s.command(call{plugin: plugin, verb: verb, engine: e, node: node, pod: p})
		if err != nil {
			return err
		}
		taken, err := s.counting(e, command)
		if err != nil {
			return fmt.Errorf("measuring: %w", err)
		}
		b.add(prefix+verb, e.name(), taken)
	}
	return removePods(e, p)
}

// counting runs commands at once, and asks the engine's server what it did.
func (s *stage) counting(e engine, commands ...job.Command) (sample, error) {
	calls, bytes, err := e.traffic()
	if err != nil {
		return sample{}, err
	}
	outcome, err := s.execute(commands...)
	if err != nil {
		return sample{}, err
	}
	taken := uncounted(outcome)
	if calls < 0 {
		return taken, nil
	}
	taken.calls, taken.bytes, err = e.traffic()
	taken.calls -= calls
	taken.bytes -= bytes
	return taken, err
}

// uncounted has the time until the last had ended, what all used, and the most
// memory that one did.
func uncounted(outcome job.Outcome) sample {
	taken := sample{wall: outcome.Wall, calls: -1, bytes: -1}
	for _, run := range outcome.Runs {
		taken.cpu += run.CPU
		taken.rss = max(taken.rss, run.PeakRSS)
	}
	return taken
}
