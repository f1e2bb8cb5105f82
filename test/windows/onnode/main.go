//go:build windows

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// Exit statuses.
const (
	exitPassed    = 0
	exitFailed    = 1
	exitCannotRun = 2
)

// totalTime bounds the whole run.
const totalTime = 15 * time.Minute

func main() {
	plugins := flag.String("plugins", `C:\k\cni`, "folder of calico.exe and calico-ipam.exe")
	mode := flag.String("mode", "vxlan", "mode of the network: vxlan or l2bridge")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), totalTime)
	defer cancel()
	os.Exit(run(ctx, os.Stdout, *plugins, *mode))
}

// run tries all cases and prints the table.
func run(ctx context.Context, out io.Writer, plugins, mode string) int {
	if mode != "vxlan" && mode != "l2bridge" {
		fmt.Fprintf(out, "onnode: -mode is %q, want vxlan or l2bridge\n", mode)
		return exitCannotRun
	}
	t, err := begin(ctx, plugins, mode)
	if err != nil {
		fmt.Fprintf(out, "onnode: nothing was tried: %v\n", err)
		return exitCannotRun
	}
	failed := 0
	report := func(name string, err error) {
		if err == nil {
			fmt.Fprintf(out, "PASS  %s\n", name)
			return
		}
		failed++
		fmt.Fprintf(out, "FAIL  %s\n      %v\n", name, err)
	}
	for _, c := range cases() {
		report(c.name, c.try(ctx, t))
	}
	// Also after a deadline.
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	report("everything of the trial is removed", t.remove(cleaning))
	report("the node is as it was", t.compare(cleaning))
	fmt.Fprintf(out, "\n%d failed; Windows build %d, HNS %d.%d, mode %s\n", failed, t.build, t.version.Major, t.version.Minor, mode)
	if failed > 0 {
		return exitFailed
	}
	return exitPassed
}
