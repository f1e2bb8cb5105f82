package netconf

import (
	"encoding/json"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// Config is the network configuration (network plugin contract 2) with every
// default filled in.
type Config struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Type       string `json:"type"`

	LogConfig
	DatastoreConfig
	NodeConfig
	InterfaceConfig
	WindowsConfig

	IPAM         IPAM   `json:"ipam"`
	IPAMLockFile string `json:"ipam_lock_file"`

	Kubernetes     Kubernetes     `json:"kubernetes"`
	Policy         Policy         `json:"policy"`
	FeatureControl FeatureControl `json:"feature_control"`
	// DataplaneOptions go to an external data plane; see ExternalDataplane.
	DataplaneOptions map[string]any `json:"dataplane_options"`
	// ReadinessGates are the URLs that must answer before a pod is networked.
	ReadinessGates []string `json:"readiness_gates"`
	// TimeoutSeconds is the deadline of a verb; see Timeout.
	TimeoutSeconds int `json:"timeout_seconds"`
	// StatusReportsExhaustion makes STATUS fail when addresses run out, which
	// makes a Kubernetes node NotReady.
	StatusReportsExhaustion bool `json:"status_reports_exhaustion"`

	DNS           types.DNS     `json:"dns"`
	RuntimeConfig RuntimeConfig `json:"runtimeConfig"`
	Args          RuntimeArgs   `json:"args"`
	// PrevResult is nil if there is none.
	PrevResult json.RawMessage `json:"prevResult"`

	// GC input, see ValidAttachments.
	GCValidAttachments json.RawMessage `json:"cni.dev/valid-attachments"`
	GCAttachments      json.RawMessage `json:"cni.dev/attachments"`
	// DisableGC makes GC do nothing.
	DisableGC bool `json:"disableGC"`

	// Warnings are about the document, not about the verb: each is one sentence.
	Warnings []string `json:"-"`
	// Placeholders are the paths of the values that an installer should have
	// filled in. Such a value counts as absent; Validate refuses it.
	Placeholders []string `json:"-"`

	// document is behind a pointer so that formatting a Config never shows it:
	// it holds credentials in clear.
	document *Document
	// requestedTimeout is timeout_seconds as written.
	requestedTimeout int
}

// LogConfig says where to log and how much.
type LogConfig struct {
	LogLevel        string `json:"log_level"`
	LogFilePath     string `json:"log_file_path"`
	LogFileMaxSize  int    `json:"log_file_max_size"`  // MB
	LogFileMaxAge   int    `json:"log_file_max_age"`   // days
	LogFileMaxCount int    `json:"log_file_max_count"` // files beside the current one
}

// DatastoreConfig says which datastore to use; see Datastore.
type DatastoreConfig struct {
	DatastoreType    string `json:"datastore_type"`
	EtcdEndpoints    string `json:"etcd_endpoints"`
	EtcdDiscoverySRV string `json:"etcd_discovery_srv"`
	EtcdKeyFile      string `json:"etcd_key_file"`
	EtcdCertFile     string `json:"etcd_cert_file"`
	EtcdCACertFile   string `json:"etcd_ca_cert_file"`
	// EtcdScheme and EtcdAuthority are obsolete and have no effect.
	EtcdScheme     string `json:"etcd_scheme"`
	EtcdAuthority  string `json:"etcd_authority"`
	CalicoAPIGroup string `json:"calico_api_group"`
	QPS            int    `json:"qps"`
	Burst          int    `json:"burst"`
	// EmbeddedFile and Pools belong to the embedded datastore.
	EmbeddedFile string `json:"embedded_file"`
	Pools        []Pool `json:"pools"`
}

// NodeConfig says which node this is; see NodeName.
type NodeConfig struct {
	Nodename             string `json:"nodename"`
	NodenameFile         string `json:"nodename_file"`
	NodenameFileOptional bool   `json:"nodename_file_optional"`
	Hostname             string `json:"hostname"` // deprecated
}

// InterfaceConfig describes the pod's interface.
type InterfaceConfig struct {
	// MTU 0 means: the MTU file, else the kernel's default.
	MTU                       int               `json:"mtu"`
	RequireMTUFile            bool              `json:"require_mtu_file"`
	NumQueues                 int               `json:"num_queues"`
	DeviceType                string            `json:"device_type"`
	ContainerSettings         ContainerSettings `json:"container_settings"`
	IncludeDefaultRoutes      bool              `json:"include_default_routes"`
	PolicySetupTimeoutSeconds int               `json:"policy_setup_timeout_seconds"`
	EndpointStatusDir         string            `json:"endpoint_status_dir"`
}

// ContainerSettings are switches inside the pod's namespace.
type ContainerSettings struct {
	AllowIPForwarding bool `json:"allow_ip_forwarding"`
}

// WindowsConfig holds the keys that only the Windows data plane reads.
type WindowsConfig struct {
	Mode             string `json:"mode"`
	VXLANVNI         uint   `json:"vxlan_vni"`
	VXLANMACPrefix   string `json:"vxlan_mac_prefix"`
	UseSingleNetwork bool   `json:"windows_use_single_network"`
	LoopbackDSR      bool   `json:"windows_loopback_DSR"`

	DisableHostSubnetNATExclusion bool `json:"windows_disable_host_subnet_nat_exclusion"`
	DisableDefaultDenyAllPolicy   bool `json:"windows_disable_default_deny_all_policy"`
	// PodDeletionTimestampTimeout is accepted and has no effect: it served a
	// runtime that is gone.
	PodDeletionTimestampTimeout int `json:"windows_pod_deletion_timestamp_timeout"`

	Policies []HNSPolicy `json:"policies"`
}

// HNSPolicy is an entry of policies.
type HNSPolicy struct {
	Name  string          `json:"Name"`
	Value json.RawMessage `json:"Value"`
}

// Kubernetes says how to reach the API server.
type Kubernetes struct {
	Kubeconfig string `json:"kubeconfig"`
	APIRoot    string `json:"k8s_api_root"`
	// NodeName is the Node whose PodCIDR is looked up; empty: the node's name.
	NodeName string `json:"node_name"`
}

// Policy says where an endpoint's labels, ports and profiles come from, and
// holds what overrides the kubeconfig.
type Policy struct {
	// Type is PolicyKubernetes, empty (one profile named like the network), or
	// something else (that profile is not made).
	Type                 string `json:"type"`
	APIRoot              string `json:"k8s_api_root"`
	AuthToken            Secret `json:"k8s_auth_token"`
	ClientCertificate    string `json:"k8s_client_certificate"`
	ClientKey            string `json:"k8s_client_key"`
	CertificateAuthority string `json:"k8s_certificate_authority"`
}

// FeatureControl allows annotations that let a pod choose its addresses.
type FeatureControl struct {
	IPAddrsNoIPAM bool `json:"ip_addrs_no_ipam"`
	FloatingIPs   bool `json:"floating_ips"`
}

// RuntimeConfig is what the runtime sends for the declared capabilities.
type RuntimeConfig struct {
	DNS RuntimeDNS `json:"dns"`
}

// RuntimeDNS is the resolver configuration the runtime wants for the pod.
type RuntimeDNS struct {
	Servers  []string `json:"servers"`
	Domain   string   `json:"domain"`
	Searches []string `json:"searches"`
	Options  []string `json:"options"`
}

// Secret is a credential. Formatting one does not show it.
type Secret string

// String hides the credential.
func (Secret) String() string { return "(secret)" }

// GoString hides the credential.
func (Secret) GoString() string { return "(secret)" }

// PolicyKubernetes is the policy type whose endpoints take labels, ports and
// profiles from namespace and pod.
const PolicyKubernetes = "k8s"

// Timeout is the deadline of a verb.
func (c *Config) Timeout() time.Duration { return time.Duration(c.TimeoutSeconds) * time.Second }

// PodDNS is the resolver configuration of the pod. If the runtime names a
// server, all four fields are the runtime's, else all are the configuration's.
func (c *Config) PodDNS() types.DNS {
	r := c.RuntimeConfig.DNS
	if len(r.Servers) == 0 {
		return c.DNS
	}
	return types.DNS{Nameservers: r.Servers, Domain: r.Domain, Search: r.Searches, Options: r.Options}
}

// ExternalDataplane returns the socket and the options of an external data
// plane; ok is false if the operating system's own is used.
func (c *Config) ExternalDataplane() (socket string, options map[string]string, ok bool) {
	if c.DataplaneOptions["type"] != dataplaneGRPC {
		return "", nil, false
	}
	options = make(map[string]string, len(c.DataplaneOptions))
	for key, value := range c.DataplaneOptions {
		if text, isText := value.(string); isText {
			options[key] = text
		}
	}
	return options["socket"], options, true
}
