// Command gocni is the runtime's side of CNI as containerd 1.6 has it: the same
// library, on a libcni that knows no version after 1.0.0. It is a module of its
// own, so that the plugins are not built with that libcni.
//
// usage: gocni CONFDIR BINDIR show | (add | del) ID NETNS
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	gocni "github.com/containerd/go-cni"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gocni:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("too few arguments: %q", args)
	}
	// As containerd's CRI plugin does.
	network, err := gocni.New(
		gocni.WithMinNetworkCount(2), gocni.WithPluginConfDir(args[0]), gocni.WithPluginDir([]string{args[1]}),
		gocni.WithPluginMaxConfNum(1), gocni.WithInterfacePrefix("eth"))
	if err != nil {
		return err
	}
	if err := network.Load(gocni.WithLoNetwork, gocni.WithDefaultConf); err != nil {
		return err
	}
	if err := network.Status(); err != nil {
		return err
	}
	switch {
	case args[2] == "show":
		return json.NewEncoder(os.Stdout).Encode(network.GetConfig())
	case args[2] == "add" && len(args) == 5:
		result, err := network.Setup(context.Background(), args[3], args[4])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(result.Raw())
	case args[2] == "del" && len(args) == 5:
		return network.Remove(context.Background(), args[3], args[4])
	}
	return fmt.Errorf("arguments are not known: %q", args)
}
