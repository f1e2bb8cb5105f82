//go:build linux

package main

import (
	"fmt"
	"slices"
)

// manyAtOnce measures ADDs of one node that start together.
func manyAtOnce(s *stage) ([]row, error) {
	var rows []row
	for _, engine := range s.engines {
		for _, many := range []int{1, 8, 32} {
			r := row{verb: fmt.Sprintf("%d ADDs at once", many), engine: engine, floor: s.empty}
			for range s.crowds {
				taken, err := s.atOnce(engine, slices.Repeat([]string{node}, many))
				if err != nil {
					return nil, err
				}
				r.samples = append(r.samples, taken)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// newcomers are the nodes that claim their first block at once.
const newcomers = 32

// newNodes measures how the first ADD of a node depends on what other nodes
// have: it must not.
func newNodes(s *stage) ([]row, error) {
	if !slices.Contains(s.engines, etcd) || s.crowds == 0 {
		return nil, nil
	}
	var rows []row
	made, present := 0, 0
	measure := func(verb string, many int) error {
		r := row{verb: verb, engine: etcd, floor: s.empty}
		for range s.crowds {
			names := make([]string, many)
			for i := range names {
				made++
				names[i] = fmt.Sprintf("new-%d", made)
			}
			if err := s.put(nodesNamed(names...)); err != nil {
				return err
			}
			taken, err := s.atOnce(etcd, names)
			if err != nil {
				return err
			}
			r.samples = append(r.samples, taken)
		}
		rows = append(rows, r)
		return nil
	}
	for _, blocks := range []int{0, 1000, 5000} {
		if err := s.crowd(present, blocks); err != nil {
			return nil, err
		}
		present = blocks
		if err := measure(fmt.Sprintf("ADD, new node, %d blocks", blocks), 1); err != nil {
			return nil, err
		}
	}
	return rows, measure(fmt.Sprintf("%d new nodes, %d blocks", newcomers, present), newcomers)
}

// atOnce starts an ADD for each node given, and deletes the pods again.
func (s *stage) atOnce(engine string, nodes []string) (sample, error) {
	pods, err := s.newPods(len(nodes))
	if err != nil {
		return sample{}, err
	}
	calls := make([]call, len(pods))
	for i, p := range pods {
		calls[i] = call{plugin: "calico", verb: "ADD", engine: engine, node: nodes[i], pod: p}
	}
	adds, err := s.commands(calls...)
	if err != nil {
		return sample{}, err
	}
	taken, err := s.counting(engine, adds...)
	if err != nil {
		return sample{}, err
	}
	for i := range calls {
		calls[i].verb = "DEL"
	}
	dels, err := s.commands(calls...)
	if err != nil {
		return sample{}, err
	}
	if _, err := s.execute(dels...); err != nil {
		return sample{}, err
	}
	return taken, removePods(pods...)
}
