package wine

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
)

// Call is one call of a plugin.
type Call struct {
	// Plugin is "calico" or "calico-ipam".
	Plugin string
	// Environment are the variables of the CNI protocol.
	Environment map[string]string
	Stdin       string
	// Port is where the simulated host listens.
	Port int
}

// Result is what a plugin printed, and its exit code.
type Result struct {
	Stdout, Stderr string
	Exit           int
}

// Run executes a plugin as a runtime does. Its executables are in C:\k\cni.
func (h *Host) Run(ctx context.Context, t testing.TB, call Call) Result {
	t.Helper()
	command := h.command(ctx, wineBinary, `C:\k\cni\`+call.Plugin+`.exe`)
	command.Env = append(command.Env, fmt.Sprintf("HNSSIM_PORT=%d", call.Port), `CNI_PATH=C:\k\cni`)
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
