package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"calico-cni/pkg/cnierr"
)

// executor runs an executable of the CNI protocol. It replaces the protocol
// library's, which waits for children that keep the output open after the
// deadline, swallows what a failing plugin logged, and reports a plugin that
// died without an error object with code 0.
type executor struct {
	version.PluginDecoder
	stderr io.Writer
}

const (
	// outputWait is how long output may stay open after the plugin has ended:
	// enough for a busy host to read what is there.
	outputWait = 500 * time.Millisecond
	// A file that is just being copied cannot be executed for a moment.
	busyPause = 100 * time.Millisecond
	busyTries = 50
)

// FindInPath implements invoke.Exec.
func (*executor) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// ExecPlugin implements invoke.Exec: it returns what the plugin wrote on
// stdout, or the error object that it printed.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	pause := time.NewTicker(busyPause)
	defer pause.Stop()
	for tries := 1; ; tries++ {
		stdout, err := e.execute(ctx, path, stdin, environ)
		if !errors.Is(err, syscall.ETXTBSY) || tries == busyTries {
			return stdout, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-pause.C:
		}
	}
}

func (e *executor) execute(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout bytes.Buffer
	said := tail{to: e.stderr}
	command := exec.CommandContext(ctx, path)
	command.Env = environ
	command.Stdin = bytes.NewReader(stdin)
	command.Stdout = &stdout
	command.Stderr = &said
	command.WaitDelay = outputWait
	err := command.Run()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return stdout.Bytes(), nil
	}
	if ctx.Err() != nil {
		return nil, cnierr.New(cnierr.TryAgainLater, "%s did not finish in time: %w%s", path, ctx.Err(), said.quoted())
	}
	var printed types.Error
	if json.Unmarshal(stdout.Bytes(), &printed) == nil && printed.Code != 0 {
		return nil, &printed
	}
	if printed.Msg != "" {
		err = fmt.Errorf("%w; %s", err, printed.Msg)
	}
	return nil, cnierr.New(cnierr.Unclassified, "%s printed no error object: %w%s", path, err, said.quoted())
}

// tailSize is how much of a plugin's last words an error shows.
const tailSize = 500

// tail passes on what is written to it and keeps the end.
type tail struct {
	to   io.Writer
	text []byte
}

// Write implements io.Writer. Nobody may fail because nobody listens.
func (t *tail) Write(text []byte) (int, error) {
	_, _ = t.to.Write(text)
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(text), nil
}

// quoted is the text as the end of a message; empty if there is none.
func (t *tail) quoted() string {
	text := strings.TrimSpace(string(t.text))
	if text == "" {
		return ""
	}
	return fmt.Sprintf("; it said %q", text)
}
