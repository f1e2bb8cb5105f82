package plugin

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/ipam"
	"calico-cni/pkg/ipamplugin"
	"calico-cni/pkg/netconf"
)

// delegate is the IPAM plugin of the configuration: our own in this process,
// or any by execution. The two ways give the same results and errors.
type delegate interface {
	inProcess() bool
	// queries is what the verb of the call reads first, if it runs in this
	// process.
	queries(call *invocation.Call) []datastore.Query
	// recent is what this host has claimed lately, if that matters here.
	recent() ipam.Claims
	// run carries out the verb of the call. store is the connection that a
	// plugin in this process shares; locked says that the IPAM lock is held.
	run(ctx context.Context, call *invocation.Call, store datastore.Store, locked bool) (types.Result, error)
}

// findIPAM chooses the way. The executable is looked for where a runtime
// looks: it must be there even if its code runs here, so that removing it
// takes effect.
func (s *serving) findIPAM() error {
	name := s.Conf.IPAM.Type
	path, err := invoke.FindInPath(name, filepath.SplitList(s.Call.Path))
	if err != nil {
		return cnierr.New(cnierr.InvalidConfiguration,
			"network configuration key ipam.type: plugin %q is not in CNI_PATH (%s): install it there", name, s.Call.Path)
	}
	if name == netconf.IPAMCalico && s.plugin.SameBuild(path) {
		s.ipam = ownIPAM{serving: s}
		return nil
	}
	s.ipam = executedIPAM{serving: s, path: path}
	return nil
}

// callIPAM runs a verb of the IPAM plugin. Its error keeps its code.
func (s *serving) callIPAM(ctx context.Context, call *invocation.Call, store datastore.Store) (*types100.Result, error) {
	result, err := s.ipam.run(ctx, call, store, s.Locked())
	if err != nil {
		return nil, cnierr.Wrap(cnierr.Unclassified, err, fmt.Sprintf("IPAM plugin %q, verb %s", s.Conf.IPAM.Type, call.Verb))
	}
	if result == nil {
		return nil, nil
	}
	converted, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, cnierr.New(cnierr.Undecodable, "result of IPAM plugin %q: %w", s.Conf.IPAM.Type, err)
	}
	return converted, nil
}

// ownIPAM runs the IPAM plugin's code in this process.
type ownIPAM struct{ *serving }

func (o ownIPAM) inProcess() bool { return true }

func (o ownIPAM) with(store datastore.Store, locked bool) *ipamplugin.Plugin {
	return &ipamplugin.Plugin{
		Environment: o.Environment, NotesDirectory: o.plugin.NotesDirectory,
		Shared: &ipamplugin.Shared{Session: o.Session, Store: store, Locked: locked, Before: o.claimed},
	}
}

func (o ownIPAM) queries(call *invocation.Call) []datastore.Query {
	plugin := o.with(nil, false)
	switch call.Verb {
	case invocation.Add:
		return plugin.AddQueries(call)
	case invocation.Del:
		return plugin.DelQueries(call)
	}
	return nil
}

func (o ownIPAM) recent() ipam.Claims { return ipamplugin.RecentClaims(o.Session) }

func (o ownIPAM) run(ctx context.Context, call *invocation.Call, store datastore.Store, locked bool) (types.Result, error) {
	plugin := o.with(store, locked)
	var delivered types.Result
	own := *call
	// An executed plugin's result passes through the configuration's version.
	own.Deliver = func(result types.Result) (err error) {
		delivered, err = invocation.Converted(result, o.Conf.CNIVersion)
		return err
	}
	if err := invocation.Guarded(o.Stderr, func() error { return invocation.Dispatch(ctx, plugin, &own) }); err != nil {
		return nil, cnierr.Printed(err)
	}
	return delivered, nil
}

// executedIPAM executes a plugin per the CNI protocol.
type executedIPAM struct {
	*serving
	path string
}

func (executedIPAM) inProcess() bool { return false }

func (executedIPAM) recent() ipam.Claims { return nil }

func (executedIPAM) queries(*invocation.Call) []datastore.Query { return nil }

func (e executedIPAM) run(ctx context.Context, call *invocation.Call, _ datastore.Store, _ bool) (types.Result, error) {
	environ := environment(call.Environ(e.plugin.Environ()))
	exec := &executor{stderr: e.Stderr}
	if call.Verb == invocation.Add {
		return invoke.ExecPluginWithResult(ctx, e.path, call.Stdin, environ, exec)
	}
	return nil, invoke.ExecPluginWithoutResult(ctx, e.path, call.Stdin, environ, exec)
}

// environment is a complete environment for the protocol library.
type environment []string

// AsEnv implements invoke.CNIArgs.
func (e environment) AsEnv() []string { return e }

// unknownVerb reports whether an executed IPAM plugin does not know a verb
// that came with CNI 1.1.
func unknownVerb(err error) bool {
	code := cnierr.CodeOf(err)
	return code == cnierr.UnsupportedVersion || code == cnierr.InvalidEnvironment
}
