package operator

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"time"

	"calico-cni/pkg/connect"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/nodename"
)

// Exit statuses.
const (
	exitFine      = 0
	exitProblems  = 1
	exitCannotRun = 2
)

// Process is the surroundings of a command.
type Process struct {
	// Args are the command and its flags.
	Args           []string
	Stdout, Stderr io.Writer
	// Open connects to the datastore without changing it.
	Open connect.Opener
	Now  func() time.Time
	// GOOS is the system whose commands are printed.
	GOOS string
	// ConfigDirectory is searched for a configuration if none is named.
	ConfigDirectory string
}

// DefaultConfigDirectory is where runtimes look for network configurations.
const DefaultConfigDirectory = "/etc/cni/net.d"

// commandTime bounds a command.
const commandTime = 60 * time.Second

// Usage describes the commands.
const Usage = `usage: calico-ipam show [--show-blocks] [--show-borrowed] [--show-configuration] [--ip=ADDRESS]
                        [-o table|json] [--config=FILE]
       calico-ipam routes [--node=NAME | --all] [-o ip|powershell|json] [--protocol=PROTOCOL]
                        [--config=FILE]

show tells how addresses are used. routes prints the routes that this node, or
the one named, needs to reach the pods of the others where no routing agent runs:
one per block of another node, and one per address that is used elsewhere than
its block. Neither changes anything. Exit status: 0 fine, 1 problems (on standard
error), 2 could not run.

The datastore is the one that the network configuration names: --config, else
the first one of this plugin in /etc/cni/net.d, else the environment's.
`

// Run carries out a command and returns the exit status.
func Run(ctx context.Context, p Process) int {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	var exit int
	var err error
	switch p.Args[0] {
	case "show":
		exit, err = runCommand(ctx, p, parse, show)
	case "routes":
		exit, err = runCommand(ctx, p, parseRoutes, showRoutes)
	default:
		fmt.Fprintf(p.Stderr, "calico-ipam: command %q is not known\n\n%s", p.Args[0], Usage)
		return exitCannotRun
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(p.Stderr, "calico-ipam %s: %v\n", p.Args[0], err)
		return exitCannotRun
	}
	return exit
}

func runCommand[O any](ctx context.Context, p Process, parse func(Process) (O, error), command func(context.Context, Process, O) (int, error)) (int, error) {
	o, err := parse(p)
	if err != nil {
		return exitFine, err
	}
	return command(ctx, p, o)
}

func newFlags(p Process, command string) *flag.FlagSet {
	set := flag.NewFlagSet("calico-ipam "+command, flag.ContinueOnError)
	set.SetOutput(p.Stderr)
	set.Usage = func() { fmt.Fprint(p.Stderr, Usage) }
	return set
}

func parseFlags(set *flag.FlagSet, p Process) error {
	if err := set.Parse(p.Args[1:]); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("argument %q is not known", set.Arg(0))
	}
	return nil
}

// open connects to the datastore that the configuration names, as which node.
func open(ctx context.Context, p Process, config string) (node string, connection connect.Connection, err error) {
	conf, err := configuration(config, p.ConfigDirectory)
	if err != nil {
		return "", connection, err
	}
	if node, err = nodename.Resolve(conf); err != nil {
		return "", connection, err
	}
	connection, err = p.Open(ctx, conf, node)
	return node, connection, err
}

// options are the flags of show.
type options struct {
	blocks, borrowed, configuration bool
	ip                              netip.Addr
	json                            bool
	config                          string
}

func parse(p Process) (options, error) {
	var o options
	var address, output string
	set := newFlags(p, "show")
	set.BoolVar(&o.blocks, "show-blocks", false, "a row for each block too")
	set.BoolVar(&o.borrowed, "show-borrowed", false, "the addresses in use on other nodes than their block's")
	set.BoolVar(&o.configuration, "show-configuration", false, "the cluster's address policy")
	set.StringVar(&address, "ip", "", "who holds this address")
	set.StringVar(&output, "o", "table", "table or json")
	set.StringVar(&o.config, "config", "", "network configuration that names the datastore")
	if err := parseFlags(set, p); err != nil {
		return o, err
	}
	if output != "table" && output != "json" {
		return o, fmt.Errorf("-o %s: use table or json", output)
	}
	o.json = output == "json"
	if address == "" {
		return o, nil
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return o, fmt.Errorf("--ip=%s is not an IP address", address)
	}
	o.ip = addr.Unmap()
	return o, nil
}

// show opens the datastore and prints what was asked for.
func show(ctx context.Context, p Process, o options) (int, error) {
	_, connection, err := open(ctx, p, o.config)
	if err != nil {
		return 0, err
	}
	defer connection.Store.Close()
	allocator := ipam.New(connection.Store, ipam.Options{Now: p.Now})
	if o.ip.IsValid() {
		return showAddress(ctx, p, o, allocator)
	}
	used, err := allocator.Usage(ctx)
	if err != nil {
		return 0, err
	}
	for _, warning := range used.Warnings {
		fmt.Fprintln(p.Stderr, warning)
	}
	exit := exitFine
	if len(used.Warnings) > 0 {
		exit = exitProblems
	}
	if o.json {
		return exit, printJSON(p.Stdout, document(used, o))
	}
	return exit, printTables(p.Stdout, used, o)
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
