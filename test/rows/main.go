package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	tables := flag.String("tables", "testdata/rows", "folder with the rows of the specification's tables")
	run := flag.String("run", ".cache/test*.json", "outputs of go test -json, as a pattern; with -record one file")
	recording := flag.Bool("record", false, "write standard input, a running go test -json, to the run and show it")
	flag.Parse()
	var err error
	proven := true
	if *recording {
		err = recordTo(*run)
	} else {
		proven, err = report(os.Stdout, *tables, *run)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rows:", err)
		os.Exit(2)
	}
	if !proven {
		os.Exit(1)
	}
}

func recordTo(run string) error {
	if err := os.MkdirAll(filepath.Dir(run), 0o755); err != nil {
		return err
	}
	file, err := os.Create(run)
	if err != nil {
		return err
	}
	if err := record(os.Stdout, file, os.Stdin); err != nil {
		return err
	}
	return file.Close()
}

// report prints the rows that the runs do not prove and says whether there
// were none.
func report(w io.Writer, tables, runs string) (bool, error) {
	rows, err := readTables(tables)
	if err != nil {
		return false, err
	}
	files, err := filepath.Glob(runs)
	if err != nil {
		return false, fmt.Errorf("looking for test runs: %w", err)
	}
	if len(files) == 0 {
		return false, fmt.Errorf("there is no test run %s: make test writes it", runs)
	}
	results := results{}
	for _, name := range files {
		if err := results.readFile(name); err != nil {
			return false, fmt.Errorf("reading the test run %s: %w", name, err)
		}
	}

	open := 0
	for _, row := range rows {
		named := results.naming(row.name)
		if len(named.passed) > 0 && len(named.failed) == 0 {
			continue
		}
		open++
		fmt.Fprintf(w, "%s %s\n", row.name, row.text)
		for _, test := range named.failed {
			fmt.Fprintf(w, "    failed: %s\n", test)
		}
	}
	fmt.Fprintf(w, "%d of %d rows are named by a passing test\n", len(rows)-open, len(rows))
	return open == 0, nil
}
