//go:build linux

package main

import (
	"fmt"
	"slices"
)

// manyAtOnce measures ADDs of one node that start together.
func manyAtOnce(s *stage) ([]row, error) {
	var rows []row
	for _, e := range s.engines {
		for _, many := range []int{1, 8, 32} {
			r := row{verb: fmt.Sprintf("%d ADDs at once", many), engine: e.name(), floor: s.empty}
			for range s.crowds {
				taken, err := s.atOnce(e, slices.Repeat([]string{node}, many))
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
	if s.crowds == 0 {
		return nil, nil
	}
	var rows []row
	made := 0
	measure := func(e engine, verb string, many int) error {
		r := row{verb: verb, engine: e.name(), floor: s.empty}
		for range s.crowds {
			names := make([]string, many)
			for i := range names {
				made++
				names[i] = fmt.Sprintf("new-%d", made)
			}
			if err := e.shared().nodes(names...); err != nil {
				return err
			}
			taken, err := s.atOnce(e, names)
			if err != nil {
				return err
			}
			r.samples = append(r.samples, taken)
		}
		rows = append(rows, r)
		return nil
	}
	shared := slices.DeleteFunc(slices.Clone(s.engines), func(e engine) bool { return e.shared() == nil })
	for _, blocks := range []int{0, 1000, 5000} {
		for _, e := range shared {
			if err := e.shared().crowd(blocks); err != nil {
				return nil, err
			}
			if err := measure(e, fmt.Sprintf("ADD, new node, %d blocks", blocks), 1); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range shared {
		if err := measure(e, fmt.Sprintf("%d new nodes, %d blocks", newcomers, e.shared().blocks), newcomers); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// atOnce starts an ADD for each node given, and deletes the pods again.
func (s *stage) atOnce(e engine, nodes []string) (sample, error) {
	pods := make([]pod, len(nodes))
	calls := make([]call, len(nodes))
	for i, node := range nodes {
		var err error
		if pods[i], err = s.newPod(e, node); err != nil {
			return sample{}, err
		}
		calls[i] = call{plugin: "calico", verb: "ADD", engine: e, node: node, pod: pods[i]}
	}
	adds, err := s.commands(calls...)
	if err != nil {
		return sample{}, err
	}
	taken, err := s.counting(e, adds...)
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
	return taken, removePods(e, pods...)
}
