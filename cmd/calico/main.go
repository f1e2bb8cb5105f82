// Command calico is the CNI network plugin: it connects a pod and records it.
// Under the name calico-ipam the same executable is the IPAM plugin.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"

	"calico-cni/pkg/build"
	"calico-cni/pkg/entry"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/plugin"
)

func main() {
	// A plugin lives for milliseconds: more threads only cost their creation.
	runtime.GOMAXPROCS(1)
	// Namespaces belong to threads.
	runtime.LockOSThread()
	os.Exit(run(context.Background(), os.Args))
}

func run(ctx context.Context, args []string) int {
	role, err := entry.Role(args[0], entry.Network, entry.IPAM)
	if err != nil {
		return invocation.Fail(entry.Process(entry.Network), nil, err)
	}
	if role == entry.IPAM {
		return entry.RunIPAM(ctx, args[1:])
	}
	process := entry.Process(role)
	flags, err := entry.ParseFlags(role, args[1:])
	switch {
	case err != nil:
		return invocation.Fail(process, nil, err)
	case flags.Help:
		return 0
	case flags.Version:
		fmt.Println(build.Version())
		return 0
	case flags.Test:
		return testConnection(ctx, process)
	}
	return entry.Serve(ctx, process, network())
}

func testConnection(ctx context.Context, process invocation.Process) int {
	document, err := io.ReadAll(process.Stdin)
	if err == nil {
		err = network().TestConnection(ctx, document)
	}
	if err != nil {
		return invocation.Fail(process, document, err)
	}
	return 0
}

func network() *plugin.Plugin {
	return &plugin.Plugin{
		Environment: entry.Environment(), Environ: os.Environ,
		MTUFile: plugin.DefaultMTUFile, StateDirectory: plugin.DefaultStateDirectory,
		NotesDirectory: ipamplugin.DefaultNotesDirectory(runtime.GOOS),
		SameBuild:      build.Same,
		Dataplane:      newDataplane,
		Host:           newHost(),
	}
}
