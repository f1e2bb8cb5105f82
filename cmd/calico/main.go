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
	"calico-cni/pkg/installer"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/plugin"
	_ "calico-cni/pkg/shortlived"
)

func main() {
	// Namespaces belong to threads.
	runtime.LockOSThread()
	os.Exit(run(context.Background(), os.Args))
}

func run(ctx context.Context, args []string) int {
	role, err := entry.Role(args[0], entry.Network, entry.IPAM, entry.Install)
	switch {
	case err != nil:
		return invocation.Fail(entry.Process(entry.Network), nil, err)
	case role == entry.IPAM:
		return entry.RunIPAM(ctx, args[1:])
	case role == entry.Install:
		return install(ctx, args[1:])
	case len(args) > 1 && args[1] == entry.Install:
		return install(ctx, args[2:])
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

func install(ctx context.Context, args []string) int {
	return installer.Main(ctx, installer.Process{Args: args, Getenv: os.Getenv, Stderr: os.Stderr, GOOS: runtime.GOOS})
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
