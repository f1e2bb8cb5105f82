package wine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Call is one call of a plugin.
type Call struct {
	// Plugin is "calico" or "calico-ipam", Args what follows it.
	Plugin string
	Args   []string
	// Folder is that of the plugins; without one it is C:\k\cni.
	Folder string
	// Environment are the variables of the CNI protocol, or of the installer.
	Environment map[string]string
	Stdin       string
	// Port is where the simulated host listens.
	Port int
	// Trace makes Wine tell on standard error which processes are created.
	Trace bool
}

// Result is what a plugin printed, and its exit code.
type Result struct {
	Stdout, Stderr string
	Exit           int
}

// Run executes a plugin as a runtime does.
func (h *Host) Run(ctx context.Context, t testing.TB, call Call) Result {
	t.Helper()
	if call.Folder == "" {
		call.Folder = `C:\k\cni`
	}
	command := h.command(ctx, wineBinary, append([]string{call.Folder + `\` + call.Plugin + `.exe`}, call.Args...)...)
	// Paths without a drive are on that of the folder: C:, not this machine's.
	command.Dir = h.Path("")
	command.Env = append(command.Env, fmt.Sprintf("HNSSIM_PORT=%d", call.Port), "CNI_PATH="+call.Folder)
	if call.Trace {
		command.Env = append(command.Env, "WINEDEBUG=-all,trace+process")
	}
	for name, value := range call.Environment {
		command.Env = append(command.Env, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(call.Stdin), &stdout, &stderr
	err := command.Run()
	if command.ProcessState == nil {
		t.Fatalf("starting %s: %v", call.Plugin, err)
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), Exit: command.ProcessState.ExitCode()}
}

// Created are the command lines of the processes that a traced call created.
func (r Result) Created() []string {
	var lines []string
	for line := range strings.Lines(r.Stderr) {
		if _, of, found := strings.Cut(line, ":process:CreateProcessInternalW app "); found {
			lines = append(lines, strings.TrimSpace(of))
		}
	}
	return lines
}

// Programs beside the pair that use HNS: tests, and what is meant for real
// nodes.
const (
	testProgram  = "package.test.exe"
	trialProgram = "onnode.exe"
)

// Tests are tests for Windows of one package.
type Tests struct {
	Package, Tags string
	// Run selects tests, as that flag of go test; List only names them.
	Run         string
	List        bool
	Port        int
	Environment map[string]string
}

// RunTests runs tests and returns what they printed.
func (h *Host) RunTests(ctx context.Context, t testing.TB, tests Tests) Result {
	t.Helper()
	h.build(ctx, t, testProgram, "test", []string{"-c", "-tags=" + tests.Tags}, tests.Package)
	args := []string{"-test.v", "-test.run=" + tests.Run}
	if tests.List {
		args = []string{"-test.list=."}
	}
	return h.Run(ctx, t, Call{Plugin: strings.TrimSuffix(testProgram, ".exe"), Args: args, Port: tests.Port, Environment: tests.Environment})
}

// InstallHostLocal puts the IPAM plugin host-local beside the pair.
func (h *Host) InstallHostLocal(t testing.TB) {
	t.Helper()
	h.build(t.Context(), t, "host-local.exe", "build", nil, "github.com/containernetworking/plugins/plugins/ipam/host-local")
}

// Build makes an executable of a package or a file beside the pair.
func (h *Host) Build(t testing.TB, name, source string) {
	t.Helper()
	h.build(t.Context(), t, name, "build", []string{"-trimpath", "-ldflags=-s -w"}, source)
}

// build makes a program for Windows beside the pair.
func (h *Host) build(ctx context.Context, t testing.TB, name, verb string, args []string, pkg string) {
	t.Helper()
	command := exec.CommandContext(ctx, "go", slices.Concat([]string{verb, "-o", h.Path("k/cni/" + name)}, args, []string{pkg})...)
	command.Dir = root()
	command.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s of %s: %v\n%s", name, pkg, err, out)
	}
}
