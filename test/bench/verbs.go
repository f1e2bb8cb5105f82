//go:build linux

package main

import (
	"fmt"
	"path/filepath"

	"calico-cni/test/bench/runner/job"
)

// warmUps are runs that are not counted.
const warmUps = 3

// verbs measures single processes. All kinds take turns, so that what else the
// machine does falls on all of them alike.
func verbs(s *stage) ([]row, error) {
	for _, engine := range s.engines {
		if err := s.resident(engine); err != nil {
			return nil, err
		}
	}
	rounds := []func(*book) error{s.startUps, s.links}
	for _, engine := range s.engines {
		rounds = append(rounds, s.pair(engine), s.ipam(engine))
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
func (s *stage) resident(engine string) error {
	p, err := s.newPod()
	if err != nil {
		return err
	}
	add, err := s.command(call{plugin: "calico", verb: "ADD", engine: engine, node: node, pod: p})
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

// startUps is the floor of all, a request to etcd alone, and our start.
func (s *stage) startUps(b *book) error {
	for _, c := range []struct {
		what, engine string
		command      job.Command
	}{
		{"floor: empty program", "", job.Command{Path: filepath.Join(s.tools, "empty")}},
		{"floor: one RPC", etcd, job.Command{Path: filepath.Join(s.tools, "rpc"), Arguments: []string{s.server.Endpoint}}},
		{"calico -v", "", job.Command{Path: filepath.Join(s.plugins, "calico"), Arguments: []string{"-v"}}},
		{"calico-ipam -v", "", job.Command{Path: filepath.Join(s.plugins, "calico-ipam"), Arguments: []string{"-v"}}},
	} {
		taken, err := s.one("", c.command)
		if err != nil {
			return err
		}
		b.add(c.what, c.engine, taken)
	}
	return nil
}

// links is what the kernel takes for a pod's links alone.
func (s *stage) links(b *book) error {
	p, err := s.newPod()
	if err != nil {
		return err
	}
	for _, what := range []string{"add", "del"} {
		taken, err := s.one("", job.Command{Path: filepath.Join(s.tools, "veth"), Arguments: []string{what, p.path()}})
		if err != nil {
			return err
		}
		b.add("floor: veth "+what, "", taken)
	}
	return removePods(p)
}

// pair is ADD and DEL of a pod by both plugins.
func (s *stage) pair(engine string) func(*book) error {
	return func(b *book) error { return s.life(b, engine, "calico", "") }
}

// ipam is the same of the IPAM plugin alone.
func (s *stage) ipam(engine string) func(*book) error {
	return func(b *book) error { return s.life(b, engine, "calico-ipam", "calico-ipam ") }
}

func (s *stage) life(b *book, engine, plugin, prefix string) error {
	p, err := s.newPod()
	if err != nil {
		return err
	}
	for _, verb := range []string{"ADD", "DEL"} {
		command, err := s.command(call{plugin: plugin, verb: verb, engine: engine, node: node, pod: p})
		if err != nil {
			return err
		}
		taken, err := s.one(engine, command)
		if err != nil {
			return err
		}
		b.add(prefix+verb, engine, taken)
	}
	return removePods(p)
}

// one runs a command by itself.
func (s *stage) one(engine string, command job.Command) (sample, error) {
	taken, err := s.counting(engine, command)
	if err != nil {
		return sample{}, fmt.Errorf("measuring: %w", err)
	}
	return taken, nil
}

// counting runs commands at once: the sample has the time until the last had
// ended, what all of them used, and the most memory that one did.
func (s *stage) counting(engine string, commands ...job.Command) (sample, error) {
	taken := sample{calls: -1, bytes: -1}
	before, err := s.server.Traffic()
	if err != nil {
		return taken, err
	}
	outcome, err := s.execute(commands...)
	if err != nil {
		return taken, err
	}
	taken.wall = outcome.Wall
	for _, run := range outcome.Runs {
		taken.cpu += run.CPU
		taken.rss = max(taken.rss, run.PeakRSS)
	}
	if engine != etcd {
		return taken, nil
	}
	after, err := s.server.Traffic()
	if err != nil {
		return taken, err
	}
	taken.calls, taken.bytes = 0, after.Bytes-before.Bytes
	for method, count := range after.Calls {
		taken.calls += count - before.Calls[method]
	}
	return taken, nil
}
