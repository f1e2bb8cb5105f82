//go:build wine && linux

package windows

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"calico-cni/test/windows/wine"
)

// measured prints a number for whoever runs the tests.
func measured(format string, values ...any) { fmt.Printf("measured: "+format+"\n", values...) }

// testCost counts the calls of HNS's DLLs: they must not become more with the
// endpoints of the node.
func testCost(t *testing.T, machine *wine.Host) {
	n := newNode(t, machine, build)
	next := 0
	pod := func() string { next++; return fmt.Sprintf("web-%d", next) }
	count := func() (add, del int) {
		container := pod()
		n.sandbox(container)
		n.engine.ClearLog()
		n.add(container)
		add = len(n.engine.Calls())
		n.engine.ClearLog()
		n.silent("DEL", container, nil)
		return add, len(n.engine.Calls())
	}
	n.add(pod())
	fewAdd, fewDel := count()
	for range 10 {
		n.add(pod())
	}
	add, del := count()
	if add != fewAdd || del != fewDel {
		t.Errorf("with ten pods more the calls of ADD are %d instead of %d, of DEL %d instead of %d", add, fewAdd, del, fewDel)
	}
	measured("Windows: calls of HNS's DLLs in steady state: ADD %d, DEL %d", add, del)
}

// hello is the least that a program can be.
const hello = "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\"hello\\n\") }\n"

// testStart compares the executable with the smallest of the same toolchain.
func testStart(t *testing.T, machine *wine.Host) {
	source := filepath.Join(t.TempDir(), "hello.go")
	if err := os.WriteFile(source, []byte(hello), 0o644); err != nil {
		t.Fatal(err)
	}
	machine.Build(t, "hello.exe", source)
	size := func(program string) int64 {
		info, err := os.Stat(machine.Path("k/cni/" + program + ".exe"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	start := func(program string, args ...string) time.Duration {
		best := time.Hour
		for range 7 {
			ctx, cancel := context.WithTimeout(t.Context(), callTime)
			began := time.Now()
			got := machine.Run(ctx, t, wine.Call{Plugin: program, Args: args})
			took := time.Since(began)
			cancel()
			if got.Exit != 0 || strings.TrimSpace(got.Stdout) == "" {
				t.Fatalf("%s: exit %d\n%s", program, got.Exit, got.Stderr)
			}
			best = min(best, took)
		}
		return best.Round(time.Millisecond)
	}
	measured("Windows: calico.exe has %.1f MB and starts in %v under Wine, hello world %.1f MB and %v",
		float64(size("calico"))/1e6, start("calico", "-v"), float64(size("hello"))/1e6, start("hello"))
	if size("calico") > 25e6 {
		t.Errorf("calico.exe has %d bytes", size("calico"))
	}
}
