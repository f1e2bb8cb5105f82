package main

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is the part of a "go test -json" line that tells a test's outcome.
type event struct {
	Action  string
	Package string
	Test    string
}

// results holds the outcome of every test, by package and full name. A test
// that ran more than once has failed if it failed once.
type results map[test]string

type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

func (r results) readFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return r.read(file)
}

// read adds the outcomes of a run.
func (r results) read(run io.Reader) error {
	decoder := json.NewDecoder(run)
	for {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		id := test{e.Package, e.Test}
		switch e.Action {
		case "pass", "fail", "skip", "run":
			// "run" stays if the test never ends: a crash of its package.
			if e.Test != "" && r[id] != "fail" {
				r[id] = e.Action
			}
		}
	}
}

// outcome lists the tests that name a row.
type outcome struct{ passed, failed []test }

func (r results) naming(row string) outcome {
	var out outcome
	for _, id := range slices.SortedFunc(maps.Keys(r), compareTests) {
		if !names(id.name, row) {
			continue
		}
		switch r[id] {
		case "pass":
			out.passed = append(out.passed, id)
		case "fail", "run":
			out.failed = append(out.failed, id)
		}
	}
	return out
}

func compareTests(a, b test) int { return strings.Compare(a.String(), b.String()) }

// names reports whether a test's full name holds the row, as a whole: where a
// subtest's name or one of its words begins (Go writes blanks as "_"), and not
// as the beginning of a longer number.
func names(name, row string) bool {
	for rest := name; ; {
		before, after, found := strings.Cut(rest, row)
		if !found {
			return false
		}
		begins := before == "" || strings.HasSuffix(before, "/") || strings.HasSuffix(before, "_")
		ends := after == "" || strings.ContainsRune("/_,:#", rune(after[0]))
		if begins && ends {
			return true
		}
		rest = after
	}
}
