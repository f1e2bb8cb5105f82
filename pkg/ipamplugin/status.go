package ipamplugin

import (
	"context"
	"errors"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/invocation"
	"calico-cni/pkg/model"
	"calico-cni/pkg/session"
)

// Status fails with code 50 if ADD could not succeed now: the datastore does
// not answer, or the last ADD found no address and another would not either.
func (p *Plugin) Status(ctx context.Context, call *invocation.Call) (err error) {
	s, err := p.begin(call)
	if err != nil {
		return err
	}
	defer s.End(&err)
	if err := s.Conf.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, session.StatusTime)
	defer cancel()
	if err := s.Connect(ctx); err != nil {
		return NotAvailable(err)
	}
	// In one process the network plugin has just had an answer.
	if p.Shared == nil {
		if _, err := s.Store.Read(ctx, datastore.Get{Key: model.IPAMConfigKey{}}); err != nil {
			return NotAvailable(err)
		}
	}
	if err := s.CheckAccess(); err != nil {
		return NotAvailable(err)
	}
	if !s.hinted() {
		return nil
	}
	return s.probe(ctx)
}

// probe asks what an ADD would meet. Exhaustion is reported only on demand: in
// Kubernetes a failing STATUS makes the node NotReady and evicts its pods, and
// a full node is no reason for that.
func (s *serving) probe(ctx context.Context) error {
	request, err := s.request()
	if err != nil {
		return err
	}
	store, err := s.complete(ctx, &request)
	if err == nil {
		err = s.allocatorOn(store).Probe(ctx, request)
	}
	switch code := cnierr.CodeOf(err); {
	case err == nil:
		s.removeHint()
		return nil
	case code == cnierr.AddressesExhausted || code == cnierr.BlockLimit:
		if !s.Conf.StatusReportsExhaustion {
			return nil
		}
	}
	return NotAvailable(err)
}

// NotAvailable turns the reason why ADD could not succeed into STATUS's code
// 50, or 7 and the like if the configuration is at fault. The text keeps the
// code that ADD would have.
func NotAvailable(err error) error {
	var coded *cnierr.Error
	err = connect.Explain(err)
	if !errors.As(err, &coded) {
		return cnierr.New(cnierr.NotAvailable, "pods cannot be networked: %w", err)
	}
	if coded.Code < cnierr.TryAgainLater || coded.Code == cnierr.LimitedConnectivity || coded.Code == cnierr.NotAvailable {
		return err
	}
	return cnierr.New(cnierr.NotAvailable, "pods cannot be networked: %w (ADD fails with code %d)", err, coded.Code)
}
