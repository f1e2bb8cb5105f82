package plugin

import (
	"context"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/netconf"
	"calico-cni/pkg/nodename"
	"calico-cni/pkg/session"
)

// TestConnection is the flag -t: it fails with code 100 unless the datastore of
// the configuration answers within 2 s and says that it is ready, and the API
// server of its kubeconfig, if it has one, answers too.
func (p *Plugin) TestConnection(ctx context.Context, configuration []byte) error {
	ctx, cancel := context.WithTimeout(ctx, session.StatusTime)
	defer cancel()
	if err := p.testConnection(ctx, configuration); err != nil {
		failed := cnierr.New(cnierr.Startup, "data store connection failed")
		failed.Details = err.Error()
		return failed
	}
	return nil
}

func (p *Plugin) testConnection(ctx context.Context, configuration []byte) error {
	conf, err := netconf.Parse(configuration)
	if err != nil {
		return err
	}
	node, err := nodename.Resolve(conf)
	if err != nil {
		return err
	}
	connection, err := p.Open(ctx, conf, node)
	if err != nil {
		return err
	}
	answers, err := connection.Store.Read(ctx, readyQuery())
	if err == nil {
		err = ready(answers[0])
	}
	// A kubeconfig may lead to another server than the datastore.
	if err == nil && conf.Kubernetes.Kubeconfig != "" {
		err = connection.Version(ctx)
	}
	if closeErr := connection.Store.Close(); err == nil {
		err = closeErr
	}
	return err
}
