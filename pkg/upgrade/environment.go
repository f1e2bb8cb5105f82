package upgrade

import (
	"context"
	"log/slog"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/netconf"
)

// nodeVariable names the node in the environment.
const nodeVariable = "KUBERNETES_NODE_NAME"

// configuration makes the datastore the Kubernetes API server, whatever the
// environment says; how to reach that comes from the environment.
const configuration = `{"cniVersion":"1.0.0","name":"` + network + `","type":"calico","datastore_type":"kubernetes","ipam":{"type":"calico-ipam"}}`

// FromEnvironment is the upgrade of the node that the environment names, in its
// usual places. What is missing in the environment has code 100: trying again
// would not help.
func FromEnvironment(getenv func(string) string, log *slog.Logger) (*Upgrade, error) {
	node := getenv(nodeVariable)
	if node == "" {
		return nil, cnierr.New(cnierr.Startup, "-upgrade: the environment variable %s, which must name this node, is missing or empty", nodeVariable)
	}
	conf, err := netconf.Parse([]byte(configuration))
	if err != nil {
		return nil, err
	}
	return &Upgrade{
		Node: node, Directory: DefaultDirectory, Plugins: DefaultPlugins, Settle: DefaultSettle, Pause: DefaultPause, Log: log,
		Open: func(ctx context.Context) (connect.Connection, error) {
			connection, err := connect.Open(getenv)(ctx, conf, node)
			if err == nil && connection.Unlimit != nil {
				connection.Unlimit() // the cluster waits
			}
			return connection, err
		},
	}, nil
}
