//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"calico-cni/test/kubetest"
)

// inside is the first argument of the process that has the namespaces.
const inside = "inside"

// options are what the command line says.
type options struct {
	plugins string
	tools   string
	engines []string
	runs    int
	crowds  int
}

func main() {
	arguments := os.Args[1:]
	do := outside
	if len(arguments) > 0 && arguments[0] == inside {
		arguments, do = arguments[1:], measure
	}
	o, err := parse(arguments)
	if err == nil {
		err = do(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(arguments []string) (options, error) {
	var o options
	var engines string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.plugins, "plugins", "bin", "folder of calico and calico-ipam")
	flags.StringVar(&o.tools, "tools", "", "folder of the built floors and the runner; empty: build them")
	flags.StringVar(&engines, "engines", etcd+","+embedded, "datastores to measure: these, "+kubernetes+" and "+distant)
	flags.IntVar(&o.runs, "n", 40, "runs of each verb")
	flags.IntVar(&o.crowds, "crowds", 5, "repetitions where many start at once; 0 leaves those out")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	o.engines = strings.Split(engines, ",")
	for _, engine := range o.engines {
		if all := []string{etcd, embedded, kubernetes, distant}; !slices.Contains(all, engine) {
			return o, fmt.Errorf("-engines: %q is none of %s", engine, strings.Join(all, ", "))
		}
	}
	if o.runs < 1 || o.crowds < 0 {
		return o, errors.New("-n must be at least 1, and -crowds at least 0")
	}
	var err error
	o.plugins, err = filepath.Abs(o.plugins)
	return o, err
}

// outside builds what is measured beside the plugins, and goes on in
// namespaces that end with the process: network, mounts and processes.
func outside(o options) error {
	if os.Geteuid() != 0 {
		return errors.New("making network namespaces needs root")
	}
	tools, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tools)
	if err := build(tools); err != nil {
		return err
	}
	if slices.Contains(o.engines, kubernetes) || slices.Contains(o.engines, distant) {
		if _, err := kubetest.Binary("kube-apiserver"); err != nil {
			return err
		}
	}
	again := exec.Command("/proc/self/exe", append([]string{inside, "-tools", tools}, os.Args[1:]...)...)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	return again.Run()
}

// build makes the floors and the runner as the plugins are made, and the etcd
// server, which needs the network that there is only outside.
func build(folder string) error {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("looking for the module: %w", err)
	}
	for _, arguments := range [][]string{
		{"build", "-trimpath", "-ldflags=-s -w", "-tags=grpcnotrace", "-o", folder + "/",
			"./test/bench/runner", "./test/bench/floor/empty", "./test/bench/floor/rpc", "./test/bench/floor/request", "./test/bench/floor/veth"},
		{"tool", "-n", "go.etcd.io/etcd/server/v3"},
	} {
		command := exec.Command("go", arguments...)
		command.Dir = strings.TrimSpace(string(module))
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w: %s", strings.Join(arguments, " "), err, out)
		}
	}
	return nil
}

// measure runs in the namespaces.
func measure(o options) error {
	s, err := newStage(o)
	if err != nil {
		return err
	}
	defer s.close()
	fmt.Println(s.describe())
	fmt.Println()
	var t table
	for _, step := range []func(*stage) ([]row, error){verbs, manyAtOnce, newNodes} {
		rows, err := step(s)
		if err != nil {
			return err
		}
		t = append(t, rows...)
	}
	fmt.Print(t)
	return nil
}
