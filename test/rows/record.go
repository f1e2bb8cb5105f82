package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// recorder turns the events of a running "go test -json" back into what a
// person wants to see: a line for each package, and all that failing tests
// printed.
type recorder struct {
	out io.Writer
	// said is what each test printed so far, and each package outside tests.
	said map[test]*strings.Builder
}

// record copies the events to file and prints them for a person, as they come.
func record(out, file io.Writer, events io.Reader) error {
	r := recorder{out: out, said: map[test]*strings.Builder{}}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if _, err := file.Write(line); err != nil {
				return fmt.Errorf("keeping the test run: %w", err)
			}
			r.event(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the test run: %w", err)
		}
	}
}

func (r recorder) event(line []byte) {
	var e struct {
		event
		Output string
	}
	if err := json.Unmarshal(line, &e); err != nil {
		// Not an event: the go command itself says something.
		fmt.Fprintf(r.out, "%s", line)
		return
	}
	id := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output(id, e.Output)
	case "pass", "skip":
		delete(r.said, id)
	case "fail":
		r.print(id)
	}
}

// measured begins what a test measured: it is of interest if the test passes.
const measured = "measured: "

// output prints a package's closing line, and what a test measured, at once and
// keeps the rest until it is known whether somebody wants to read it.
func (r recorder) output(id test, text string) {
	closing := id.name == "" && (strings.HasPrefix(text, "ok ") || strings.HasPrefix(text, "FAIL\t"))
	if closing || strings.HasPrefix(text, measured) {
		fmt.Fprint(r.out, text)
		return
	}
	if r.said[id] == nil {
		r.said[id] = &strings.Builder{}
	}
	r.said[id].WriteString(text)
}

// print shows what a failed test said. A failed package shows its unfinished
// tests too: one of them crashed it.
func (r recorder) print(id test) {
	for other, said := range r.said {
		if other == id || id.name == "" && other.pkg == id.pkg {
			fmt.Fprint(r.out, said.String())
			delete(r.said, other)
		}
	}
}
