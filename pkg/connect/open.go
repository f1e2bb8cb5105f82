package connect

import (
	"context"
	"os"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/embedded"
	"calico-cni/pkg/datastore/etcd"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

// Connection is an open datastore.
type Connection struct {
	Store datastore.Store
	// Embedded is true if the datastore is a file of this host.
	Embedded bool
	// API answers gets of Kubernetes' own nodes, namespaces and pods. It
	// connects when it is first asked, and fails then if nothing says where the
	// API server is. Store answers the latter two as well, together with what
	// else it is asked.
	API Reader
	// Version fails unless the API server can be reached.
	Version func(ctx context.Context) error
	// LabelAffinities gives affinities that an old release wrote the labels by
	// which their host finds them; nil if the datastore needs none.
	LabelAffinities func(ctx context.Context, host string) (int, error)
	// Unlimit is for what grows with the content of the datastore: it ends the
	// client's limits if nobody has set any. It is nil if there are none.
	Unlimit func()
	// Credentials names the file that the credentials come from and
	// CredentialsEnd is when they end; zero: they do not, or there are none.
	Credentials    string
	CredentialsEnd time.Time
	// Writable fails if nothing could be written now; nil: only a write tells.
	Writable func() error
	// Warnings are about the datastore's content.
	Warnings []string
}

// Opener connects to the datastore that a configuration and the environment
// name. node is this host's name: the embedded datastore makes its Node.
// Errors carry CNI codes.
type Opener func(ctx context.Context, conf *netconf.Config, node string) (Connection, error)

// Open returns the Opener of an environment.
func Open(getenv func(string) string) Opener { return opener(getenv, openEmbedded) }

// Inspect returns an Opener that makes nothing: an embedded datastore must
// exist.
func Inspect(getenv func(string) string) Opener {
	open := opener(getenv, inspectEmbedded)
	return func(ctx context.Context, conf *netconf.Config, node string) (Connection, error) {
		connection, err := open(ctx, conf, node)
		if err == nil && connection.Unlimit != nil {
			connection.Unlimit()
		}
		return connection, err
	}
}

func opener(getenv func(string) string, file func(context.Context, netconf.EmbeddedSettings, string) (Connection, error)) Opener {
	return func(ctx context.Context, conf *netconf.Config, node string) (Connection, error) {
		choice, err := choose(conf, getenv)
		if err != nil {
			return Connection{}, err
		}
		var connection Connection
		switch choice.Kind {
		case netconf.Etcd:
			connection, err = openEtcd(ctx, choice.Etcd)
		case netconf.EmbeddedDatastore:
			connection, err = file(ctx, choice.Embedded, node)
		default:
			connection, err = openKubernetes(ctx, choice.Kubernetes, getenv)
		}
		if err != nil {
			return Connection{}, Explain(err)
		}
		return withAPI(connection, conf, choice, getenv), nil
	}
}

// ExpectNoAgent makes the nodename file optional if the datastore is embedded
// and the configuration says nothing of that file: no node agent runs there
// that would write it.
func ExpectNoAgent(conf *netconf.Config, getenv func(string) string) {
	choice, err := choose(conf, getenv)
	if err == nil && choice.Kind == netconf.EmbeddedDatastore && !conf.Given("nodename_file") && !conf.Given("nodename_file_optional") {
		conf.NodenameFileOptional = true
	}
}

func choose(conf *netconf.Config, getenv func(string) string) (netconf.DatastoreChoice, error) {
	return netconf.Datastore(conf, getenv, fileExists)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func openEtcd(ctx context.Context, settings netconf.EtcdSettings) (Connection, error) {
	store, err := etcd.Open(ctx, etcd.Options{
		Endpoints: settings.Endpoints, DiscoverySRV: settings.DiscoverySRV,
		CertFile: settings.CertFile, KeyFile: settings.KeyFile, CAFile: settings.CACertFile,
		Username: settings.Username, Password: string(settings.Password),
	})
	if err != nil {
		return Connection{}, err
	}
	return Connection{Store: store, Credentials: settings.CertFile, CredentialsEnd: store.CertificateEnds()}, nil
}

func openEmbedded(ctx context.Context, settings netconf.EmbeddedSettings, node string) (Connection, error) {
	bootstrap := embedded.Bootstrap{NodeName: node}
	for _, declared := range settings.Pools {
		bootstrap.Pools = append(bootstrap.Pools, &model.IPPool{
			Metadata: model.Metadata{Name: declared.Name}, RawCIDR: declared.CIDR, BlockSize: declared.BlockSize,
			NATOutgoing: declared.NATOutgoing, NodeSelector: declared.NodeSelector, Disabled: declared.Disabled,
		})
	}
	store, warnings, err := embedded.Open(ctx, settings.File, bootstrap)
	if err != nil {
		return Connection{}, err
	}
	return Connection{Store: store, Embedded: true, Writable: store.Writable, Warnings: warnings}, nil
}

func inspectEmbedded(_ context.Context, settings netconf.EmbeddedSettings, _ string) (Connection, error) {
	store, err := embedded.Inspect(settings.File)
	if err != nil {
		return Connection{}, err
	}
	return Connection{Store: store, Embedded: true}, nil
}
