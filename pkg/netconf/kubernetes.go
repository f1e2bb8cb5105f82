package netconf

import (
	"strings"

	"calico-cni/pkg/cnierr"
)

// KubernetesSettings say how to reach the API server. What is not empty
// overrides the kubeconfig.
type KubernetesSettings struct {
	// Kubeconfig is a path or a list of paths, as in the variable KUBECONFIG.
	Kubeconfig string
	Context    string
	APIRoot    string
	Token      Secret
	CertFile   string
	KeyFile    string
	CAFile     string

	InsecureSkipTLSVerify bool
	// ServiceAccountDir is set if the pod's own service account is to be used;
	// then there is no kubeconfig.
	ServiceAccountDir string

	// QPS and Burst are the defaults unless RateGiven.
	QPS       float32
	Burst     int
	RateGiven bool
	// APIGroup is empty if the server must be asked.
	APIGroup string
}

const (
	defaultQPS   = 5
	defaultBurst = 100

	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// PolicyClient says how to reach the API server for namespaces, pods and
// nodes. It differs from the settings of a Kubernetes datastore only if the
// configuration has a policy section with an address or certificates of its own.
func PolicyClient(conf *Config, getenv func(string) string, fileExists func(string) bool) (KubernetesSettings, error) {
	s := settings{conf: conf, getenv: getenv, fileExists: fileExists}
	out, err := s.kubernetes()
	if err != nil {
		return KubernetesSettings{}, err
	}
	if s.apiRoot().value == "" && conf.Policy.APIRoot != "" {
		if out.APIRoot, err = s.policyAPIRoot(); err != nil {
			return KubernetesSettings{}, err
		}
	}
	out.CertFile = orText(conf.Policy.ClientCertificate, out.CertFile)
	out.KeyFile = orText(conf.Policy.ClientKey, out.KeyFile)
	out.CAFile = orText(conf.Policy.CertificateAuthority, out.CAFile)
	return out, nil
}

func (s settings) kubernetes() (KubernetesSettings, error) {
	out := KubernetesSettings{
		Kubeconfig: s.kubeconfig(),
		Context:    s.env("K8S_CURRENT_CONTEXT"),
		Token:      Secret(orText(string(s.conf.Policy.AuthToken), s.env("K8S_API_TOKEN"))),
		CertFile:   s.env("K8S_CERT_FILE"),
		KeyFile:    s.env("K8S_KEY_FILE"),
		CAFile:     s.env("K8S_CA_FILE"),
		APIGroup:   s.pick(s.conf.CalicoAPIGroup, "calico_api_group", "CALICO_API_GROUP").value,
	}
	var err error
	if out.APIRoot, err = s.checkedAPIRoot(); err != nil {
		return KubernetesSettings{}, err
	}
	if out.InsecureSkipTLSVerify, err = s.boolean("K8S_INSECURE_SKIP_TLS_VERIFY"); err != nil {
		return KubernetesSettings{}, err
	}
	if out.QPS, out.Burst, out.RateGiven, err = s.rates(); err != nil {
		return KubernetesSettings{}, err
	}
	return s.locate(out)
}

// locate fills in where the server is if nothing names it: the user's own
// kubeconfig, the service account, the address in the policy section. In a
// host-process container the service account replaces any kubeconfig.
func (s settings) locate(out KubernetesSettings) (KubernetesSettings, error) {
	if mount := s.getenv("CONTAINER_SANDBOX_MOUNT_POINT"); mount != "" {
		out.Kubeconfig = ""
		out.ServiceAccountDir = mount + serviceAccountDir
		return out, nil
	}
	if out.Kubeconfig != "" || out.APIRoot != "" {
		return out, nil
	}
	if home := s.getenv("HOME"); home != "" && s.fileExists(home+"/.kube/config") {
		out.Kubeconfig = home + "/.kube/config"
		return out, nil
	}
	if s.inCluster() {
		out.ServiceAccountDir = serviceAccountDir
		return out, nil
	}
	var err error
	if out.APIRoot, err = s.policyAPIRoot(); err != nil {
		return KubernetesSettings{}, err
	}
	if out.APIRoot == "" {
		return KubernetesSettings{}, cnierr.New(cnierr.InvalidConfiguration,
			"nothing says where the Kubernetes API server is: set kubernetes.kubeconfig to the path of a kubeconfig file")
	}
	return out, nil
}

// kubeconfig is the configured path; $HOME/.kube/config is not one.
func (s settings) kubeconfig() string {
	return s.pick(s.conf.Kubernetes.Kubeconfig, "kubernetes.kubeconfig", "KUBECONFIG").value
}

func (s settings) apiRoot() setting {
	return s.pick(s.conf.Kubernetes.APIRoot, "kubernetes.k8s_api_root", "K8S_API_ENDPOINT")
}

func (s settings) checkedAPIRoot() (string, error) {
	root := s.apiRoot()
	if root.value == "" {
		return "", nil
	}
	server, err := ParseServerURL(root.key, root.value)
	if err != nil {
		return "", err
	}
	return server.String(), nil
}

// policyAPIRoot is the server that policy.k8s_api_root names; old
// configurations write the path of the API behind it.
func (s settings) policyAPIRoot() (string, error) {
	root, _, _ := strings.Cut(s.conf.Policy.APIRoot, "/api/")
	if root == "" {
		return "", nil
	}
	server, err := ParseServerURL("policy.k8s_api_root", root)
	if err != nil {
		return "", err
	}
	return server.String(), nil
}

// inCluster reports whether this is a pod with a service account.
func (s settings) inCluster() bool {
	mount := s.getenv("CONTAINER_SANDBOX_MOUNT_POINT")
	return s.getenv("KUBERNETES_SERVICE_HOST") != "" && s.fileExists(mount+serviceAccountDir+"/token")
}
