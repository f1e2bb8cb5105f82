package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// prefixes says how tests name the rows of each file of the tables folder.
var prefixes = []struct{ file, prefix string }{
	{"network.txt", "Network/"},
	{"linux.txt", "Linux/"},
	{"sequences.txt", "Linux/36/"},
	{"ipam.txt", "IPAM/"},
	{"windows.txt", "Windows/"},
}

// row is one line of a table: the name that a test has to begin with, and what
// the specification says there.
type row struct{ name, text string }

func readTables(folder string) ([]row, error) {
	var rows []row
	for _, table := range prefixes {
		path := filepath.Join(folder, table.file)
		read, err := readTable(path, table.prefix)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		rows = append(rows, read...)
	}
	return rows, nil
}

// readTable reads lines of a number, a blank and a text. Numbers must rise, so
// that no row is there twice.
func readTable(path, prefix string) ([]row, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	var rows []row
	last := 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		number, text, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		if err != nil || text == "" {
			return nil, fmt.Errorf("line %q is not a number and a text", lines.Text())
		}
		if n <= last {
			return nil, fmt.Errorf("row %d follows row %d", n, last)
		}
		last = n
		rows = append(rows, row{name: prefix + number, text: text})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("the table has no rows")
	}
	return rows, nil
}
