package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, c := range []struct {
		test, row string
		want      bool
	}{
		{"TestAdd/Linux/6_host_route", "Linux/6", true},
		{"TestAdd/Linux/6", "Linux/6", true},
		{"TestAdd/Linux/6#01", "Linux/6", true},
		{"TestAdd/Linux/6/veth", "Linux/6", true},
		{"TestAdd/IPAM/24_IPAM/25_DEL_twice", "IPAM/25", true},
		{"TestAdd/Linux/36/1_DEL_A", "Linux/36/1", true},
		{"TestAdd/Linux/36/1_DEL_A", "Linux/36", true},
		{"TestAdd/Linux/36/14_renamed", "Linux/36/1", false},
		{"TestAdd/Linux/36/14_Linux/36/1_both", "Linux/36/1", true},
		{"TestAdd/Linux/60_x", "Linux/6", false},
		{"TestAdd/Linux/6.1_sysctls", "Linux/6", false},
		{"TestAdd/ArchLinux/6", "Linux/6", false},
		{"TestAdd/Linux", "Linux/6", false},
	} {
		if got := names(c.test, c.row); got != c.want {
			t.Errorf("names(%q, %q) = %v, want %v", c.test, c.row, got, c.want)
		}
	}
}

// line is one event as go test -json prints it.
func line(action, test string) string {
	return `{"Action":"` + action + `","Package":"p","Test":"` + test + `"}` + "\n"
}

func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		run    string
		proven bool
		prints []string
	}{
		"all rows pass": {
			run: line("run", "T/Network/1") + line("pass", "T/Network/1") + line("pass", "T/Linux/2") + line("pass", "T/Linux/36/1_x") +
				line("pass", "T/IPAM/7_x") + line("pass", "T/Windows/9"),
			proven: true,
			prints: []string{"5 of 5 rows"},
		},
		"a row without a test": {
			run:    line("pass", "T/Network/1") + line("pass", "T/Linux/36/1") + line("pass", "T/IPAM/7") + line("pass", "T/Windows/9"),
			prints: []string{"Linux/2 a link", "4 of 5 rows"},
		},
		"a row that only a skipped test names": {
			run:    line("pass", "T/Network/1") + line("skip", "T/Linux/2") + line("pass", "T/Linux/36/1") + line("pass", "T/IPAM/7") + line("pass", "T/Windows/9"),
			prints: []string{"Linux/2 a link"},
		},
		"a failing test beside a passing one": {
			run: line("pass", "T/Network/1") + line("pass", "T/Linux/2") + line("fail", "U/Linux/2") +
				line("pass", "T/Linux/36/1") + line("pass", "T/IPAM/7") + line("pass", "T/Windows/9"),
			prints: []string{"Linux/2 a link", "failed: p U/Linux/2"},
		},
		"a test that never ended": {
			run: line("pass", "T/Network/1") + line("pass", "T/Linux/2") + line("run", "T/IPAM/7") +
				line("pass", "T/Linux/36/1") + line("pass", "T/Windows/9"),
			prints: []string{"IPAM/7 an address", "failed: p T/IPAM/7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, content := range map[string]string{
				"network.txt": "1 a name\n", "linux.txt": "2 a link\n", "sequences.txt": "1 a sequence\n",
				"ipam.txt": "7 an address\n", "windows.txt": "9 an endpoint\n", "run.json": c.run,
			} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			proven, err := report(&out, folder, filepath.Join(folder, "run.json"))
			if err != nil {
				t.Fatal(err)
			}
			if proven != c.proven {
				t.Errorf("proven = %v, want %v; it printed:\n%s", proven, c.proven, out.String())
			}
			for _, want := range c.prints {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, out.String())
				}
			}
		})
	}
}

// TestReportOfSeveralRuns: what one run proves, another need not name; what
// failed in one is not proven by the other.
func TestReportOfSeveralRuns(t *testing.T) {
	for second, want := range map[string]bool{line("pass", "T/Linux/2"): true, line("pass", "T/Linux/2") + line("fail", "U/IPAM/7"): false} {
		folder := t.TempDir()
		for file, content := range map[string]string{
			"network.txt": "1 a name\n", "linux.txt": "2 a link\n", "sequences.txt": "1 a sequence\n", "ipam.txt": "7 an address\n", "windows.txt": "9 an endpoint\n",
			"test.json": line("pass", "T/Network/1") + line("pass", "T/Linux/36/1") + line("pass", "T/IPAM/7") + line("pass", "T/Windows/9"), "test-more.json": second,
		} {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out strings.Builder
		if proven, err := report(&out, folder, filepath.Join(folder, "test*.json")); err != nil || proven != want {
			t.Errorf("with %q beside: proven is %v (%v), want %v:\n%s", second, proven, err, want, out.String())
		}
	}
	if _, err := report(io.Discard, "../../testdata/rows", filepath.Join(t.TempDir(), "test*.json")); err == nil {
		t.Error("no run at all is no error")
	}
}

func TestReadTableRefuses(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "no number": "one text\n", "no text": "1\n", "twice the same": "1 a\n1 b\n", "falling": "2 a\n1 b\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "table.txt")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if rows, err := readTable(path, "X/"); err == nil {
				t.Errorf("readTable accepts %q as %v", content, rows)
			}
		})
	}
}

// TestTables proves that the tables of this repository can be read, with the
// number of rows that the specification has.
func TestTables(t *testing.T) {
	rows, err := readTables("../../testdata/rows")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, row := range rows {
		count[row.name[:strings.LastIndex(row.name, "/")+1]]++
	}
	for prefix, want := range map[string]int{"Network/": 74, "Linux/": 49, "Linux/36/": 14, "IPAM/": 70, "Windows/": 63} {
		if count[prefix] != want {
			t.Errorf("%d rows of %s, want %d", count[prefix], prefix, want)
		}
	}
}

func TestRecord(t *testing.T) {
	events := strings.Join([]string{
		`{"Action":"build-output","ImportPath":"q","Output":"q.go:1: wrong\n"}`,
		`{"Action":"output","Package":"p","Test":"TestGood","Output":"good says\n"}`,
		`{"Action":"output","Package":"p","Test":"TestGood","Output":"measured: 7 calls\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestGood"}`,
		`{"Action":"output","Package":"p","Test":"TestBad","Output":"bad says\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestBad"}`,
		`{"Action":"output","Package":"p","Test":"TestCrash","Output":"crash says\n"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}`,
		`{"Action":"fail","Package":"p"}`,
		`{"Action":"output","Package":"r","Output":"ok  \tr\t0.1s\n"}`,
		`{"Action":"pass","Package":"r"}`,
		`go: a plain line`,
	}, "\n")
	var out, file strings.Builder
	if err := record(&out, &file, strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if file.String() != events {
		t.Errorf("the run was kept as %q", file.String())
	}
	want := "q.go:1: wrong\nmeasured: 7 calls\nbad says\nFAIL\tp\t0.1s\ncrash says\nok  \tr\t0.1s\ngo: a plain line"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
