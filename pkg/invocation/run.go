package invocation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"calico-cni/pkg/cnierr"
)

// Plugin is what a CNI plugin does. A verb is called with a configuration of a
// version that knows it.
type Plugin interface {
	// Add passes its result to the call's Deliver.
	Add(context.Context, *Call) error
	Check(context.Context, *Call) error
	Del(context.Context, *Call) error
	Status(context.Context, *Call) error
	GC(context.Context, *Call) error
}

// Process is the surroundings of one call.
type Process struct {
	// Name and Version are for the text that a person sees who starts the
	// plugin by hand.
	Name, Version string
	Getenv        func(string) string
	Stdin         io.Reader
	Stdout        io.Writer
	Stderr        io.Writer
}

// resultVersion is the version of a result for a configuration's version: a
// configuration that names none is of a time whose runtimes read 0.2.0.
func resultVersion(configured string) string {
	if configured == "" {
		return "0.2.0"
	}
	return configured
}

// Run serves one call and returns the exit status. Stdout receives the result
// of ADD or the version document, or one error object, or nothing.
func Run(ctx context.Context, p Process, plugin Plugin) (exit int) {
	call, err := parse(p.Getenv)
	if errors.Is(err, errNoCommand) {
		fmt.Fprintf(p.Stderr, "CNI plugin %s %s\nCNI protocol versions supported: %s\n",
			p.Name, p.Version, strings.Join(version.All.SupportedVersions(), ", "))
		return 0
	}
	configured := version.Current()
	if err == nil && call.Verb == versionVerb {
		err = version.All.Encode(p.Stdout)
	} else if err == nil {
		configured, err = serve(ctx, p, plugin, call)
	} else if stdin, readErr := readStdin(p.Stdin); readErr == nil {
		configured, _ = configuredVersion(stdin)
	}
	if err == nil {
		return 0
	}
	return fail(p, configured, err)
}

func fail(p Process, configured string, err error) int {
	if printErr := cnierr.Print(p.Stdout, resultVersion(configured), err); printErr != nil {
		fmt.Fprintf(p.Stderr, "%v\nwriting this error to stdout: %v\n", err, printErr)
	}
	return 1
}

// Fail prints an error that is of no call, and returns the exit status.
// document is the configuration, nil if none was read.
func Fail(p Process, document []byte, err error) int {
	configured, _ := configuredVersion(document)
	return fail(p, configured, err)
}

// serve runs the verb. configured is the version for the error object.
func serve(ctx context.Context, p Process, plugin Plugin, call *Call) (configured string, err error) {
	if call.Stdin, err = readStdin(p.Stdin); err != nil {
		return version.Current(), err
	}
	if configured, err = configuredVersion(call.Stdin); err != nil {
		return configured, err
	}
	if err := versionServes(call.Verb, configured); err != nil {
		return configured, err
	}
	call.Deliver = func(result types.Result) error { return printResult(p.Stdout, result, configured) }
	return configured, Guarded(p.Stderr, func() error { return Dispatch(ctx, plugin, call) })
}

// Dispatch calls the method of the call's verb.
func Dispatch(ctx context.Context, plugin Plugin, call *Call) error {
	switch call.Verb {
	case Add:
		return plugin.Add(ctx, call)
	case Check:
		return plugin.Check(ctx, call)
	case Del:
		return plugin.Del(ctx, call)
	case Status:
		return plugin.Status(ctx, call)
	case GC:
		return plugin.GC(ctx, call)
	}
	return cnierr.New(cnierr.InvalidEnvironment, "CNI_COMMAND %s is not served", call.Verb)
}

// Guarded turns a panic of do into an error with code 114. Its stack goes to
// stderr, for the report that the error asks for.
func Guarded(stderr io.Writer, do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			fmt.Fprintf(stderr, "panic: %v\n%s", cause, debug.Stack())
			err = cnierr.New(cnierr.Internal, "internal error: %v; the stack is on stderr: report it, and repeat the call", cause)
		}
	}()
	return do()
}

// Converted is a result in the form for a configuration's version.
func Converted(result types.Result, configured string) (types.Result, error) {
	version := resultVersion(configured)
	converted, err := result.GetAsVersion(version)
	if err != nil {
		return nil, cnierr.New(cnierr.UnsupportedVersion, "converting the result to cniVersion %s: %w", version, err)
	}
	return converted, nil
}

func printResult(stdout io.Writer, result types.Result, configured string) error {
	converted, err := Converted(result, configured)
	if err != nil {
		return err
	}
	if err := converted.PrintTo(stdout); err != nil {
		return cnierr.New(cnierr.InputOutput, "writing the result to stdout: %w", err)
	}
	return nil
}

// configuredVersion reads the version without looking at the rest, so that
// every other error can be printed with it.
func configuredVersion(document []byte) (string, error) {
	var configuration struct {
		CNIVersion json.RawMessage `json:"cniVersion"`
	}
	if err := json.Unmarshal(document, &configuration); err != nil {
		if json.Valid(document) {
			return version.Current(), cnierr.New(cnierr.InvalidConfiguration, "the network configuration on stdin is no JSON object: %w", err)
		}
		return version.Current(), cnierr.New(cnierr.Undecodable, "the network configuration on stdin is not JSON%s: %w", emptiness(document), err)
	}
	var text string
	if configuration.CNIVersion == nil {
		return "", nil
	}
	if err := json.Unmarshal(configuration.CNIVersion, &text); err != nil {
		return version.Current(), cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key cniVersion: want a string such as \"1.1.0\", found %s", configuration.CNIVersion)
	}
	return text, nil
}

// firstVersion is the version of the specification that introduced the verb.
func firstVersion(verb Verb) string {
	switch verb {
	case Check:
		return "0.4.0"
	case Status, GC:
		return "1.1.0"
	}
	return "0.1.0"
}

// emptiness names the commonest cause: a runtime that wrote nothing.
func emptiness(document []byte) string {
	if len(bytes.TrimSpace(document)) == 0 {
		return ", it is empty"
	}
	return ""
}

func versionServes(verb Verb, configured string) error {
	known := version.All.SupportedVersions()
	if configured == "" {
		configured = known[0]
	}
	at, first := slices.Index(known, configured), slices.Index(known, firstVersion(verb))
	if at < 0 {
		return cnierr.New(cnierr.UnsupportedVersion, "cniVersion %q is not supported; supported are %s", configured, strings.Join(known, ", "))
	}
	if at < first {
		return cnierr.New(cnierr.UnsupportedVersion, "%s needs cniVersion %s or later, the configuration has %s", verb, firstVersion(verb), configured)
	}
	return nil
}
