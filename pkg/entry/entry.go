package entry

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"calico-cni/pkg/build"
	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/logging"
	"calico-cni/pkg/operator"
	"calico-cni/pkg/session"
	"calico-cni/pkg/upgrade"
)

// The roles, which are also the names that the executables must have.
const (
	Network = "calico"
	IPAM    = "calico-ipam"
	// Install is the name of the network plugin's executable in an image, where
	// it installs the plugins; elsewhere that is its command of this name.
	Install = "install"
)

// Role is the executable's name without folder and ".exe". Any other name than
// those the caller serves is an error with code 100: the file was renamed, and
// a runtime that calls it expects something else.
func Role(arg0 string, served ...string) (string, error) {
	name := strings.TrimSuffix(filepath.Base(arg0), ".exe")
	for _, role := range served {
		if name == role {
			return role, nil
		}
	}
	return "", cnierr.New(cnierr.Startup, "this executable is called %q, but can serve only as %s: rename it", name, strings.Join(served, " or "))
}

// Process is the surroundings of this process.
func Process(role string) invocation.Process {
	return invocation.Process{
		Name: role, Version: build.Version(), Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
}

// Environment is the surroundings of a plugin in this process.
func Environment() session.Environment {
	return session.Environment{
		Getenv: os.Getenv, Open: connect.Open(os.Getenv), Stderr: os.Stderr, GOOS: runtime.GOOS, Now: time.Now,
	}
}

// Flags are the flags that a role may have.
type Flags struct {
	// Help was given already.
	Help    bool
	Version bool
	// Test asks for a connection test instead of a verb.
	Test bool
	// Upgrade asks for the move from host-local to calico-ipam.
	Upgrade bool
}

// ParseFlags reads the arguments; -t is known only to the network plugin,
// -upgrade only to the IPAM plugin.
func ParseFlags(role string, args []string) (Flags, error) {
	var flags Flags
	set := flag.NewFlagSet(role, flag.ContinueOnError)
	set.SetOutput(os.Stderr)
	set.BoolVar(&flags.Version, "v", false, "print the version and exit")
	if role == Network {
		set.BoolVar(&flags.Test, "t", false, "test the connection to the datastore that the configuration on stdin names")
	}
	if role == IPAM {
		set.BoolVar(&flags.Upgrade, "upgrade", false, "take over what host-local has given to the pods of this node, and exit")
	}
	err := set.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return Flags{Help: true}, nil
	}
	if err != nil {
		return flags, cnierr.New(cnierr.Startup, "reading the arguments: %w", err)
	}
	if set.NArg() > 0 {
		return flags, cnierr.New(cnierr.Startup, "argument %q is not known", set.Arg(0))
	}
	return flags, nil
}

// Serve serves one call and returns the exit status. A runtime that closes our
// stderr or stdout must not end this process in the middle of a verb: a write
// then fails like any other, and a verb whose result nobody takes is undone.
func Serve(ctx context.Context, process invocation.Process, plugin invocation.Plugin) int {
	// Not ignored: an executed plugin would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return invocation.Run(ctx, process, plugin)
}

// RunIPAM serves one call of the IPAM plugin, or one of the operator's
// commands, and returns the exit status.
func RunIPAM(ctx context.Context, args []string) int {
	process := Process(IPAM)
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return operator.Run(ctx, operator.Process{
			Args: args, Stdout: os.Stdout, Stderr: os.Stderr, Open: connect.Inspect(os.Getenv), Now: time.Now,
			GOOS: runtime.GOOS, ConfigDirectory: operator.DefaultConfigDirectory,
		})
	}
	flags, err := ParseFlags(IPAM, args)
	if err != nil {
		return invocation.Fail(process, nil, err)
	}
	if flags.Help {
		fmt.Fprint(os.Stderr, "Or a command:\n", operator.Usage)
		return 0
	}
	if flags.Version {
		fmt.Println(build.Version())
		return 0
	}
	if flags.Upgrade {
		return runUpgrade(ctx, process)
	}
	return Serve(ctx, process, &ipamplugin.Plugin{
		Environment: Environment(), NotesDirectory: ipamplugin.DefaultNotesDirectory(runtime.GOOS),
	})
}

// runUpgrade moves the node, however often it has to try, and returns the exit
// status. Whoever stops it may start it again.
func runUpgrade(ctx context.Context, process invocation.Process) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log, closeLog := logging.New(logging.Options{}, process.Stderr)
	defer closeLog()
	u, err := upgrade.FromEnvironment(process.Getenv, log)
	if err == nil {
		err = u.Run(ctx)
	}
	if err != nil {
		return invocation.Fail(process, nil, err)
	}
	return 0
}
