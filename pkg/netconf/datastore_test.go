package netconf

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
)

// surroundings are a test's environment and files.
type surroundings struct {
	env   map[string]string
	files []string
}

func (s surroundings) getenv(name string) string   { return s.env[name] }
func (s surroundings) fileExists(path string) bool { return slices.Contains(s.files, path) }

const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

func TestDatastoreKind(t *testing.T) {
	t.Parallel()
	inPod := surroundings{map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, []string{tokenFile}}
	atHome := surroundings{map[string]string{"HOME": "/home/u"}, []string{"/home/u/.kube/config"}}
	env := func(name, value string) surroundings { return surroundings{env: map[string]string{name: value}} }
	tests := []struct {
		name    string
		members string
		around  surroundings
		want    DatastoreKind
	}{
		{"nothing", `"mtu":0`, surroundings{}, EmbeddedDatastore},
		{"user's kubeconfig is no cluster", `"mtu":0`, atHome, EmbeddedDatastore},
		{"explicitly embedded", `"datastore_type":"embedded","kubernetes":{"kubeconfig":"/k"}`, inPod, EmbeddedDatastore},
		{"service host without token", `"mtu":0`, env("KUBERNETES_SERVICE_HOST", "10.96.0.1"), EmbeddedDatastore},
		{"service account", `"mtu":0`, inPod, KubernetesAPI},
		{"kubeconfig", `"kubernetes":{"kubeconfig":"/k"}`, surroundings{}, KubernetesAPI},
		{"kubeconfig in the environment", `"mtu":0`, env("KUBECONFIG", "/k"), KubernetesAPI},
		{"API root", `"kubernetes":{"k8s_api_root":"https://h"}`, surroundings{}, KubernetesAPI},
		{"API root of policy", `"policy":{"k8s_api_root":"https://h/api/v1"}`, surroundings{}, KubernetesAPI},
		{"API root in the environment", `"mtu":0`, env("CALICO_K8S_API_ENDPOINT", "https://h"), KubernetesAPI},
		{"type in the environment", `"mtu":0`, surroundings{map[string]string{"DATASTORE_TYPE": "kubernetes", "HOME": "/home/u"}, atHome.files}, KubernetesAPI},
		{"endpoints", `"etcd_endpoints":"http://h:2379"`, inPod, Etcd},
		{"endpoints in the environment", `"kubernetes":{"kubeconfig":"/k"}`, env("ETCD_ENDPOINTS", "http://h:2379"), Etcd},
		{"SRV name does not count", `"etcd_discovery_srv":"example.org","kubernetes":{"kubeconfig":"/k"}`, surroundings{}, KubernetesAPI},
		{"SRV name with type", `"datastore_type":"etcdv3","etcd_discovery_srv":"example.org"`, surroundings{}, Etcd},
		{"configuration wins over environment", `"datastore_type":"etcdv3","etcd_endpoints":"http://h:2379"`, env("DATASTORE_TYPE", "kubernetes"), Etcd},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Datastore(parse(t, with(tt.members)), tt.around.getenv, tt.around.fileExists)
			if err != nil || got.Kind != tt.want {
				t.Errorf("Datastore = %q, %v, want %q", got.Kind, err, tt.want)
			}
		})
	}
}

func TestDatastoreRefuses(t *testing.T) {
	t.Parallel()
	const etcd = `"datastore_type":"etcdv3"`
	tests := []struct {
		name    string
		members string
		env     map[string]string
		parts   []string
	}{
		{"unknown type", `"datastore_type":"consul"`, nil, []string{"key datastore_type", `"consul"`, "embedded"}},
		{"unknown type in the environment", `"mtu":0`, map[string]string{"CALICO_DATASTORE_TYPE": "etcd"}, []string{"environment variable CALICO_DATASTORE_TYPE"}},
		{"endpoints and SRV", etcd + `,"etcd_endpoints":"http://h","etcd_discovery_srv":"d"`, nil, []string{"both", "etcd_endpoints", "etcd_discovery_srv"}},
		{"endpoints and SRV of the environment", etcd + `,"etcd_endpoints":"http://h"`, map[string]string{"ETCD_DISCOVERY_SRV": "d"}, []string{"both", "variable ETCD_DISCOVERY_SRV"}},
		{"neither", etcd, nil, []string{"neither"}},
		{"only commas", etcd + `,"etcd_endpoints":" , "`, nil, []string{"neither"}},
		{"malformed endpoint", `"etcd_endpoints":"https://a:2379,h:2379"`, nil, []string{"key etcd_endpoints", `"h:2379"`}},
		{"endpoint of another scheme", `"etcd_endpoints":"unix:///run/etcd"`, nil, []string{`"unix:///run/etcd"`}},
		{"malformed endpoint in the environment", `"mtu":0`, map[string]string{"ETCD_ENDPOINTS": "http://"}, []string{"variable ETCD_ENDPOINTS"}},
		{"malformed API root", `"kubernetes":{"k8s_api_root":"nohost"}`, nil, []string{"key kubernetes.k8s_api_root", `"nohost"`}},
		{"malformed API root of policy", `"policy":{"k8s_api_root":"nohost/api/v1"}`, nil, []string{"key policy.k8s_api_root", `"nohost"`}},
		{"Kubernetes without address", `"datastore_type":"kubernetes"`, nil, []string{"kubernetes.kubeconfig"}},
		{"bad rate", `"kubernetes":{"kubeconfig":"/k"}`, map[string]string{"K8S_CLIENT_QPS": "NaN"}, []string{"variable K8S_CLIENT_QPS", `"NaN"`}},
		{"negative rate", `"kubernetes":{"kubeconfig":"/k"},"burst":-1`, nil, []string{"key burst", `"-1"`}},
		{"bad boolean", `"kubernetes":{"kubeconfig":"/k"}`, map[string]string{"K8S_INSECURE_SKIP_TLS_VERIFY": "jein"}, []string{"K8S_INSECURE_SKIP_TLS_VERIFY"}},
		{"no IPAM objects, but calico-ipam", `"kubernetes":{"kubeconfig":"/k"}`, map[string]string{"CALICO_USE_POD_CIDR": "true"},
			[]string{`"calico-ipam"`, "operation not supported", "environment variable CALICO_USE_POD_CIDR", "host-local"}},
		{"bad boolean for all kinds", `"mtu":0`, map[string]string{"USE_POD_CIDR": "x"}, []string{"USE_POD_CIDR"}},
		{"placeholder of the type", `"datastore_type":"__DATASTORE_TYPE__"`, map[string]string{"DATASTORE_TYPE": "etcdv3"}, []string{"datastore_type is still a placeholder"}},
		{"placeholder that would decide", `"kubernetes":{"kubeconfig":"__KUBECONFIG_FILEPATH__"}`, nil, []string{"kubernetes.kubeconfig is still a placeholder"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			around := surroundings{env: tt.env}
			_, err := Datastore(parse(t, with(tt.members)), around.getenv, around.fileExists)
			wantError(t, err, cnierr.InvalidConfiguration, tt.parts...)
		})
	}
}

func TestDatastoreIgnoresPlaceholdersOfOtherKinds(t *testing.T) {
	t.Parallel()
	conf := parse(t, with(`"datastore_type":"kubernetes","kubernetes":{"kubeconfig":"/k"},"etcd_endpoints":"__ETCD_ENDPOINTS__"`))
	around := surroundings{}
	if got, err := Datastore(conf, around.getenv, around.fileExists); err != nil || got.Kind != KubernetesAPI {
		t.Errorf("Datastore = %v, %v", got.Kind, err)
	}
}

func TestEtcdSettings(t *testing.T) {
	t.Parallel()
	conf := parse(t, with(`"etcd_endpoints":"https://a:2379, https://[fd00::1]:2379,","etcd_cert_file":"/conf/cert"`))
	around := surroundings{env: map[string]string{
		"ETCD_CERT_FILE": "/env/cert", "ETCD_KEY_FILE": "/env/key", "CALICO_ETCD_KEY_FILE": "/prefixed/key",
		"ETCD_CA_CERT_FILE": "/env/ca", "ETCD_USERNAME": "u", "ETCD_PASSWORD": "s3cret", "USE_POD_CIDR": "true",
	}}
	choice, err := Datastore(conf, around.getenv, around.fileExists)
	if err != nil {
		t.Fatal(err)
	}
	got := choice.Etcd
	if !slices.Equal(got.Endpoints, []string{"https://a:2379", "https://[fd00::1]:2379"}) {
		t.Errorf("Endpoints = %q", got.Endpoints)
	}
	if got.CertFile != "/conf/cert" || got.KeyFile != "/prefixed/key" || got.CACertFile != "/env/ca" || got.Username != "u" || got.Password != "s3cret" {
		t.Errorf("settings %#v", got)
	}
	if !choice.UsePodCIDR {
		t.Error("USE_POD_CIDR was not read")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, choice); strings.Contains(text, "s3cret") {
			t.Errorf("Network/56 %s shows the password: %s", verb, text)
		}
	}
	delete(around.env, "ETCD_USERNAME")
	if choice, _ := Datastore(conf, around.getenv, around.fileExists); choice.Etcd.Password != "" {
		t.Error("a password without a user name counts")
	}
}

func TestKubernetesSettings(t *testing.T) {
	t.Parallel()
	const dir = "/var/run/secrets/kubernetes.io/serviceaccount"
	home := []string{"/home/u/.kube/config", tokenFile, "C:/c" + tokenFile}
	plain := KubernetesSettings{QPS: 5, Burst: 100}
	set := func(change func(*KubernetesSettings)) KubernetesSettings {
		out := plain
		change(&out)
		return out
	}
	tests := []struct {
		name    string
		members string
		env     map[string]string
		want    KubernetesSettings
	}{
		{"kubeconfig wins over the environment", `"kubernetes":{"kubeconfig":"/conf"}`, map[string]string{"KUBECONFIG": "/env", "HOME": "/home/u"},
			set(func(s *KubernetesSettings) { s.Kubeconfig = "/conf" })},
		{"user's kubeconfig", `"datastore_type":"kubernetes"`, map[string]string{"HOME": "/home/u", "KUBERNETES_SERVICE_HOST": "h"},
			set(func(s *KubernetesSettings) { s.Kubeconfig = "/home/u/.kube/config" })},
		{"service account", `"calico_api_group":"projectcalico.org/v3"`, map[string]string{"HOME": "/root", "KUBERNETES_SERVICE_HOST": "h"},
			set(func(s *KubernetesSettings) { s.ServiceAccountDir, s.APIGroup = dir, "projectcalico.org/v3" })},
		{"host-process container", `"kubernetes":{"kubeconfig":"/conf"}`, map[string]string{"CONTAINER_SANDBOX_MOUNT_POINT": "C:/c", "KUBERNETES_SERVICE_HOST": "h"},
			set(func(s *KubernetesSettings) { s.ServiceAccountDir = "C:/c" + dir })},
		{"bracketed IPv4", `"kubernetes":{"k8s_api_root":"https://[192.0.2.1]:6443"}`, nil,
			set(func(s *KubernetesSettings) { s.APIRoot = "https://192.0.2.1:6443" })},
		{"API root of policy as last resort", `"policy":{"k8s_api_root":"https://h:6443/api/v1/"}`, nil,
			set(func(s *KubernetesSettings) { s.APIRoot = "https://h:6443" })},
		{"environment only", `"kubernetes":{"kubeconfig":"/k"}`,
			map[string]string{"K8S_API_TOKEN": "t", "K8S_CERT_FILE": "c", "K8S_KEY_FILE": "k", "K8S_CA_FILE": "a", "K8S_CURRENT_CONTEXT": "x",
				"K8S_INSECURE_SKIP_TLS_VERIFY": "1", "K8S_CLIENT_QPS": "2.5", "K8S_CLIENT_BURST": "7"},
			KubernetesSettings{Kubeconfig: "/k", Token: "t", CertFile: "c", KeyFile: "k", CAFile: "a", Context: "x", InsecureSkipTLSVerify: true, QPS: 2.5, Burst: 7, RateGiven: true}},
		{"rates and token of the configuration", `"kubernetes":{"kubeconfig":"/k"},"qps":20,"burst":30,"policy":{"k8s_auth_token":"conf","k8s_client_key":"plain only"}`,
			map[string]string{"K8S_CLIENT_QPS": "2.5", "K8S_API_TOKEN": "env"},
			KubernetesSettings{Kubeconfig: "/k", Token: "conf", QPS: 20, Burst: 30, RateGiven: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			around := surroundings{tt.env, home}
			got, err := Datastore(parse(t, with(tt.members)), around.getenv, around.fileExists)
			if err != nil || got.Kubernetes != tt.want {
				t.Errorf("got  %+v, %v\nwant %+v", got.Kubernetes, err, tt.want)
			}
		})
	}
}

func TestPolicyClient(t *testing.T) {
	t.Parallel()
	const certificates = `"k8s_client_certificate":"c","k8s_client_key":"k","k8s_certificate_authority":"a"`
	tests := []struct {
		name    string
		members string
		want    KubernetesSettings
	}{
		{"as the datastore", `"kubernetes":{"kubeconfig":"/k"}`, KubernetesSettings{Kubeconfig: "/k"}},
		{"policy overrides the kubeconfig", `"kubernetes":{"kubeconfig":"/k"},"policy":{"k8s_api_root":"https://h/api/v1",` + certificates + `}`,
			KubernetesSettings{Kubeconfig: "/k", APIRoot: "https://h", CertFile: "c", KeyFile: "k", CAFile: "a"}},
		{"kubernetes.k8s_api_root wins", `"kubernetes":{"k8s_api_root":"https://k"},"policy":{"k8s_api_root":"https://p"}`, KubernetesSettings{APIRoot: "https://k"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			around := surroundings{}
			tt.want.QPS, tt.want.Burst = 5, 100
			got, err := PolicyClient(parse(t, with(tt.members)), around.getenv, around.fileExists)
			if err != nil || got != tt.want {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

func TestEmbeddedSettings(t *testing.T) {
	t.Parallel()
	around := surroundings{}
	got, err := Datastore(parse(t, with(`"embedded_file":"/f","pools":[{"cidr":"10.77.0.0/16"}]`)), around.getenv, around.fileExists)
	if err != nil || got.Embedded.File != "/f" || len(got.Embedded.Pools) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParseServerURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://h:6443":                "https://h:6443",
		" http://192.0.2.1 ":            "http://192.0.2.1",
		"https://[192.0.2.1]:6443/base": "https://192.0.2.1:6443/base",
		"https://[fd00::1]:6443":        "https://[fd00::1]:6443",
	} {
		if got, err := ParseServerURL("k", raw); err != nil || got.String() != want {
			t.Errorf("ParseServerURL(%q) = %v, %v, want %s", raw, got, err, want)
		}
	}
	for _, raw := range []string{"", "h", "h:1", "https://", "https://:6443", "https://[::1", "ftp://h", "https://u:s3cret@h:s3cret", "u:s3cret@h", "https://h:x?t=s3cret"} {
		_, err := ParseServerURL("k", raw)
		wantError(t, err, cnierr.InvalidConfiguration, "key k")
		if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), "h:s3cret", ""), "s3cret") {
			t.Errorf("error shows a password: %v", err)
		}
	}
}
