package plugin

import (
	"context"
	"fmt"

	"calico-cni/pkg/annotation"
	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/pkg/netconf"
)

// readsPod: policy of type k8s takes labels, ports, profiles and wishes from
// the pod and its namespace (network plugin contract 6.2 step 3).
func (s *serving) readsPod() bool {
	return s.ID.IsKubernetes() && s.Conf.Policy.Type == netconf.PolicyKubernetes
}

func (s *serving) podQuery() datastore.Query {
	return datastore.Get{Key: model.ResourceKey{Kind: model.KindPod, Namespace: s.ID.Namespace, Name: s.ID.Pod}}
}

// podQueries are what ADD asks for in its first batch: namespace, then pod.
func (s *serving) podQueries() []datastore.Query {
	namespace, ok := s.NamespaceQuery()
	if !ok || !s.readsPod() {
		return nil
	}
	return []datastore.Query{namespace, s.podQuery()}
}

// learnPod takes the answers to podQueries, and reads what namespace and pod
// wish for. Nothing has been taken yet, so a bad annotation costs nothing.
func (a *addition) learnPod(answers []datastore.Answer) error {
	if len(answers) == 0 {
		return a.expectEndpoint()
	}
	namespace, _ := datastore.One[model.Namespace](answers[0])
	if namespace == nil {
		return missing("namespace " + a.ID.Namespace)
	}
	if a.pod, _ = datastore.One[model.Pod](answers[1]); a.pod == nil {
		return missing("pod " + a.ID.Namespace + "/" + a.ID.Pod)
	}
	if err := a.expectEndpoint(); err != nil {
		return err
	}
	var err error
	a.wishes, err = annotation.Read(namespace, a.pod, annotation.Allowed{
		CalicoIPAM:           a.Conf.IPAM.Type == netconf.IPAMCalico,
		AddressesWithoutIPAM: a.Conf.FeatureControl.IPAddrsNoIPAM,
		FloatingIPs:          a.Conf.FeatureControl.FloatingIPs,
	})
	if err != nil {
		return err
	}
	a.ipamCall.Stdin, err = a.wishedDocument()
	return err
}

func missing(what string) error {
	return cnierr.New(cnierr.TryAgainLater,
		"%s does not exist in the Kubernetes API: it was deleted, or the kubeconfig leads to another cluster", what)
}

// expectEndpoint: in a Kubernetes datastore the endpoint is a view of the pod,
// which must be there before an address is taken for it. Whose pod that is, is
// remembered: one made anew under the name is not ours to write to.
func (a *addition) expectEndpoint() error {
	if a.Store.Transactional() {
		return nil
	}
	if !a.ID.IsKubernetes() {
		return cnierr.New(cnierr.InvalidEnvironment,
			"CNI_ARGS names no pod (K8S_POD_NAME, K8S_POD_NAMESPACE): a Kubernetes datastore records nothing else; use etcd or the embedded datastore")
	}
	if a.view.record == nil {
		return cnierr.New(cnierr.TryAgainLater,
			"pod %s/%s is no endpoint of node %s: it does not exist, is scheduled elsewhere or uses the host's network", a.ID.Namespace, a.ID.Pod, a.ID.Node)
	}
	a.podUID = a.view.record.Metadata.UID
	return nil
}

// samePod fails if the pod went, or was made anew under its name, while this
// call was on its way.
func (a *addition) samePod() error {
	if a.podUID == "" || a.view.record != nil && a.view.record.Metadata.UID == a.podUID {
		return nil
	}
	return cnierr.New(cnierr.Overtaken,
		"pod %s/%s with UID %s was deleted while it was being connected: nothing to do, a new pod of its name is connected by a call of its own",
		a.ID.Namespace, a.ID.Pod, a.podUID)
}

// wishedDocument is the IPAM plugin's configuration with the pools and families
// that namespace and pod wish for.
func (a *addition) wishedDocument() ([]byte, error) {
	w := a.wishes
	if w.Pools4 == nil && w.Pools6 == nil && w.Families == nil {
		return a.ipamCall.Stdin, nil
	}
	document := a.Conf.Document()
	if w.Pools4 != nil {
		document.SetIPAM("ipv4_pools", w.Pools4)
	}
	if w.Pools6 != nil {
		document.SetIPAM("ipv6_pools", w.Pools6)
	}
	if w.Families != nil {
		for key, family := range map[string]model.Family{"assign_ipv4": model.IPv4, "assign_ipv6": model.IPv6} {
			document.SetIPAM(key, fmt.Sprint(wants(w.Families, family)))
		}
	}
	return document.Bytes()
}

func wants(families []model.Family, family model.Family) bool {
	for _, f := range families {
		if f == family {
			return true
		}
	}
	return false
}

// fillFromPod sets what policy takes from the pod (network plugin contract 5
// and 6.2 step 5).
func (a *addition) fillFromPod(endpoint *model.WorkloadEndpoint) {
	projected := a.pod.Endpoint(endpoint.Metadata.Name, endpoint.Spec.InterfaceName)
	endpoint.Metadata.GenerateName = projected.Metadata.GenerateName
	endpoint.Metadata.Labels = projected.Metadata.Labels
	spec := &endpoint.Spec
	spec.ServiceAccount, spec.Ports, spec.Profiles = projected.Spec.ServiceAccount, projected.Spec.Ports, projected.Spec.Profiles
	spec.IPNATs = a.nats
	spec.SpoofedSources = nil
	for _, prefix := range a.wishes.SourcePrefixes {
		spec.SpoofedSources = append(spec.SpoofedSources, prefix.String())
	}
}

// bypassesIPAM reports whether the pod brought its own addresses, which no IPAM
// plugin knows.
func (s *serving) bypassesIPAM(ctx context.Context) (bool, error) {
	if !s.readsPod() || s.Conf.IPAM.Type != netconf.IPAMCalico || !s.Conf.FeatureControl.IPAddrsNoIPAM {
		return false, nil
	}
	answers, err := s.Store.Read(ctx, s.podQuery())
	if err != nil {
		return false, err
	}
	pod, _ := datastore.One[model.Pod](answers[0])
	return pod != nil && pod.Metadata.Annotations[annotation.IPAddrsNoIPAM] != "", nil
}
