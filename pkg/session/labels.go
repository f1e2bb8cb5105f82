package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"calico-cni/pkg/connect"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

// labelledMark is the file, beside the IPAM lock, that says since the host's
// start that its affinities have their labels. Other IPAM plugins leave the
// same one.
const labelledMark = "cni/ipam_upgraded"

// labelTime bounds the search for affinities without labels: other calls wait
// for the IPAM lock meanwhile.
const labelTime = 15 * time.Second

// LabelsPending reports whether LabelAffinities has anything to do: it asks the
// datastore once per boot.
func (s *Session) LabelsPending() bool {
	if s.labelAffinities == nil {
		return false
	}
	_, err := os.Stat(s.labelledMark())
	return err != nil
}

func (s *Session) labelledMark() string {
	return filepath.Join(filepath.Dir(s.Conf.IPAMLockFile), labelledMark)
}

// LabelAffinities is to be called before the first allocation, under the IPAM
// lock: without their labels a host's own blocks are invisible to it (datastore
// contract 4.3).
func (s *Session) LabelAffinities(ctx context.Context) error {
	if !s.LabelsPending() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, labelTime)
	defer cancel()
	labelled, err := s.labelAffinities(ctx, s.ID.Node)
	if err != nil {
		return connect.Explain(fmt.Errorf("labelling the block affinities of node %s that an old release wrote: %w", s.ID.Node, err))
	}
	if labelled > 0 {
		s.Log.Info("labelled block affinities that an old release wrote", "number", labelled)
	}
	if err := leaveMark(s.labelledMark()); err != nil {
		s.Log.Warn("every ADD will look for affinities without labels", "error", err)
	}
	return nil
}

func leaveMark(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

// NamespaceQuery asks for the pod's namespace; ok is false if there is none or
// nothing leads to it. Pools select namespaces by their labels (IPAM contract
// 7.1 step 5).
func (s *Session) NamespaceQuery() (query datastore.Query, ok bool) {
	if !s.ID.IsKubernetes() || !s.LeadsToCluster() {
		return nil, false
	}
	return datastore.Get{Key: model.ResourceKey{Kind: model.KindNamespace, Name: s.ID.Namespace}}, true
}

// LeadsToCluster reports whether the configuration tells, beside the datastore,
// where the Kubernetes API server is.
func (s *Session) LeadsToCluster() bool {
	return s.Conf.Kubernetes.Kubeconfig != "" || s.Conf.Policy.Type == netconf.PolicyKubernetes
}
