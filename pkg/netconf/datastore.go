package netconf

import (
	"slices"
	"strings"

	"calico-cni/pkg/cnierr"
)

// DatastoreKind is where a cluster's data live. Its values are those of
// datastore_type.
type DatastoreKind string

// The three kinds.
const (
	Etcd              DatastoreKind = "etcdv3"
	KubernetesAPI     DatastoreKind = "kubernetes"
	EmbeddedDatastore DatastoreKind = "embedded"
)

// undecided is the kind while nothing names one.
const undecided DatastoreKind = ""

// DatastoreChoice is the datastore to use. Only the settings of its kind are set.
type DatastoreChoice struct {
	Kind       DatastoreKind
	Etcd       EtcdSettings
	Kubernetes KubernetesSettings
	Embedded   EmbeddedSettings
	// UsePodCIDR means that the datastore holds no IPAM objects.
	UsePodCIDR bool
}

// EtcdSettings say how to reach etcd. Either Endpoints or DiscoverySRV is set.
type EtcdSettings struct {
	Endpoints    []string
	DiscoverySRV string
	KeyFile      string
	CertFile     string
	CACertFile   string
	// Username and Password are both set or both empty.
	Username string
	Password Secret
}

// EmbeddedSettings say which file is the datastore and which pools it starts with.
type EmbeddedSettings struct {
	File  string
	Pools []Pool
}

// Datastore chooses the datastore (datastore contract 1.1, 1.2). Values of the
// configuration win over the environment, and there the name with prefix
// CALICO_ over the plain one. Without any sign of a cluster it is the embedded
// one; $HOME/.kube/config by itself is no such sign.
func Datastore(conf *Config, getenv func(string) string, fileExists func(string) bool) (DatastoreChoice, error) {
	s := settings{conf: conf, getenv: getenv, fileExists: fileExists}
	kind, err := s.kind()
	if err != nil {
		return DatastoreChoice{}, err
	}
	choice := DatastoreChoice{Kind: kind}
	switch kind {
	case Etcd:
		choice.Etcd, err = s.etcd()
	case KubernetesAPI:
		choice.Kubernetes, err = s.kubernetes()
	default:
		choice.Embedded = EmbeddedSettings{File: conf.EmbeddedFile, Pools: slices.Clone(conf.Pools)}
	}
	if err != nil {
		return DatastoreChoice{}, err
	}
	if choice.UsePodCIDR, err = s.boolean("USE_POD_CIDR"); err != nil {
		return DatastoreChoice{}, err
	}
	return choice, s.refusePodCIDR(choice)
}

// refusePodCIDR: pods that have addresses of their node's podCIDR have none of
// IPAM, whose objects such a cluster does not hold (datastore contract 1.2).
func (s settings) refusePodCIDR(choice DatastoreChoice) error {
	if !choice.UsePodCIDR || choice.Kind != KubernetesAPI || s.conf.IPAM.Type != IPAMCalico {
		return nil
	}
	return cnierr.New(cnierr.InvalidConfiguration,
		"IPAM plugin %q: operation not supported, because %s is true and addresses come from the nodes' podCIDR: set ipam.type to \"host-local\" with the subnet \"usePodCidr\", or unset the variable",
		IPAMCalico, describeKey(s.variable("USE_POD_CIDR").key))
}

// kind decides without reaching for any of the datastores.
func (s settings) kind() (DatastoreKind, error) {
	chosen := s.pick(s.conf.DatastoreType, "datastore_type", "DATASTORE_TYPE")
	kind := DatastoreKind(chosen.value)
	switch kind {
	case Etcd, KubernetesAPI, EmbeddedDatastore, undecided:
	default:
		return "", cnierr.New(cnierr.InvalidConfiguration,
			"%s: %q is not a datastore: use \"etcdv3\", \"kubernetes\" or \"embedded\"", describeKey(chosen.key), chosen.value)
	}
	if err := s.refusePlaceholders(kind); err != nil {
		return "", err
	}
	switch {
	case kind != undecided:
		return kind, nil
	case s.endpoints().value != "":
		return Etcd, nil
	case s.namesCluster():
		return KubernetesAPI, nil
	}
	return EmbeddedDatastore, nil
}

// refusePlaceholders: a placeholder counts as absent elsewhere, but to guess
// the datastore would let DEL succeed on the wrong one.
func (s settings) refusePlaceholders(kind DatastoreKind) error {
	if s.conf.isPlaceholder("datastore_type") {
		return placeholderError("datastore_type")
	}
	deciding := []struct {
		path string
		kind DatastoreKind
	}{
		{"etcd_endpoints", Etcd},
		{"etcd_discovery_srv", Etcd},
		{"kubernetes.kubeconfig", KubernetesAPI},
		{"kubernetes.k8s_api_root", KubernetesAPI},
		{"policy.k8s_api_root", KubernetesAPI},
		{"embedded_file", EmbeddedDatastore},
	}
	for _, key := range deciding {
		if (kind == key.kind || kind == undecided) && s.conf.isPlaceholder(key.path) {
			return placeholderError(key.path)
		}
	}
	return nil
}

// namesCluster reports whether anything points at a cluster. An SRV name alone
// does not choose etcd, but it rules out the embedded datastore.
func (s settings) namesCluster() bool {
	return s.discoverySRV().value != "" || s.kubeconfig() != "" || s.apiRoot().value != "" ||
		s.conf.Policy.APIRoot != "" || s.inCluster()
}

func (s settings) endpoints() setting {
	return s.pick(s.conf.EtcdEndpoints, "etcd_endpoints", "ETCD_ENDPOINTS")
}

func (s settings) discoverySRV() setting {
	return s.pick(s.conf.EtcdDiscoverySRV, "etcd_discovery_srv", "ETCD_DISCOVERY_SRV")
}

func (s settings) etcd() (EtcdSettings, error) {
	endpoints, srv := s.endpoints(), s.discoverySRV()
	out := EtcdSettings{
		DiscoverySRV: srv.value,
		KeyFile:      s.pick(s.conf.EtcdKeyFile, "etcd_key_file", "ETCD_KEY_FILE").value,
		CertFile:     s.pick(s.conf.EtcdCertFile, "etcd_cert_file", "ETCD_CERT_FILE").value,
		CACertFile:   s.pick(s.conf.EtcdCACertFile, "etcd_ca_cert_file", "ETCD_CA_CERT_FILE").value,
	}
	for endpoint := range strings.SplitSeq(endpoints.value, ",") {
		endpoint = strings.TrimSpace(endpoint)
		if endpoint == "" {
			continue
		}
		server, err := ParseServerURL(endpoints.key, endpoint)
		if err != nil {
			return EtcdSettings{}, err
		}
		out.Endpoints = append(out.Endpoints, server.String())
	}
	switch {
	case len(out.Endpoints) > 0 && srv.value != "":
		return EtcdSettings{}, cnierr.New(cnierr.InvalidConfiguration,
			"both %s and %s are set: keep one of them", describeKey(endpoints.key), describeKey(srv.key))
	case len(out.Endpoints) == 0 && srv.value == "":
		return EtcdSettings{}, cnierr.New(cnierr.InvalidConfiguration,
			"datastore_type is \"etcdv3\", but neither etcd_endpoints nor etcd_discovery_srv is set: set one of them")
	}
	if user, password := s.env("ETCD_USERNAME"), s.env("ETCD_PASSWORD"); user != "" && password != "" {
		out.Username, out.Password = user, Secret(password)
	}
	return out, nil
}
