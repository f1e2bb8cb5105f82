package installer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Process is the surroundings of the command.
type Process struct {
	// Args are the flags.
	Args   []string
	Getenv func(string) string
	Stderr io.Writer
	GOOS   string
}

// Exit statuses.
const (
	exitFine      = 0
	exitProblems  = 1
	exitCannotRun = 2
)

const usage = `usage: calico install [-from DIR] [-bin-dir DIR]... [-conf-dir DIR]

Installs the plugins and their configuration on this node. Without flags it
expects to run in a container that has the host's folders below /host. What is
installed is said by environment variables: docs/install.md lists them.

  -from DIR      folder of the plugins to install (/opt/cni/bin)
  -bin-dir DIR   folder to install them into (/host/opt/cni/bin and
                 /host/secondary-bin-dir); may be given more than once
  -conf-dir DIR  folder for the configuration (/host/etc/cni/net.d)
`

// Main carries out the command until it is done or told to end, and returns
// the exit status.
func Main(ctx context.Context, p Process) int {
	arguments, err := parse(p)
	if errors.Is(err, flag.ErrHelp) {
		return exitFine
	}
	if err != nil {
		fmt.Fprintf(p.Stderr, "calico install: %v\n", err)
		return exitCannotRun
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := install(ctx, p, arguments); err != nil {
		fmt.Fprintf(p.Stderr, "calico install: %v\n", err)
		return exitProblems
	}
	return exitFine
}

func install(ctx context.Context, p Process, arguments Arguments) error {
	name, err := os.Hostname()
	if err != nil && p.Getenv("KUBERNETES_NODE_NAME") == "" {
		return fmt.Errorf("this node's name: %w; set KUBERNETES_NODE_NAME", err)
	}
	settings, err := ReadSettings(p.Getenv, Host{GOOS: p.GOOS, Name: name, DSR: hasDSR(), NetDir: arguments.ConfDir})
	if err != nil {
		return err
	}
	in := Installer{
		Settings: settings, GOOS: p.GOOS, Layout: Locate(arguments, p.Getenv("CONTAINER_SANDBOX_MOUNT_POINT")),
		Log: slog.New(slog.NewTextHandler(p.Stderr, nil)),
	}
	return in.Run(ctx)
}

func parse(p Process) (Arguments, error) {
	var a Arguments
	set := flag.NewFlagSet("calico install", flag.ContinueOnError)
	set.SetOutput(p.Stderr)
	set.Usage = func() { fmt.Fprint(p.Stderr, usage) }
	set.StringVar(&a.From, "from", "", "")
	set.StringVar(&a.ConfDir, "conf-dir", "", "")
	set.Func("bin-dir", "", func(dir string) error {
		if strings.TrimSpace(dir) == "" {
			return errors.New("want a folder")
		}
		a.BinDirs = append(a.BinDirs, dir)
		return nil
	})
	if err := set.Parse(p.Args); err != nil {
		return a, err
	}
	if set.NArg() > 0 {
		return a, fmt.Errorf("argument %q is not known", set.Arg(0))
	}
	return a, nil
}
