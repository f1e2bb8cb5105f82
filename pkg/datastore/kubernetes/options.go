package kubernetes

import (
	"strings"

	"calico-cni/pkg/model"
)

// Options says how to reach the API server and as whom (datastore contract
// 1.2). What is not empty overrides the kubeconfig.
type Options struct {
	// Kubeconfig is a path or a list of paths, as in the variable KUBECONFIG.
	Kubeconfig string
	// Context is the context of the kubeconfig; empty: its current one.
	Context string
	// Server is the URL of the API server.
	Server string
	Token  string
	// CertFile, KeyFile and CAFile are PEM files.
	CertFile, KeyFile, CAFile string

	InsecureSkipTLSVerify bool

	// QPS is how many requests a second this client sends at most, once it has
	// sent Burst; 0: as many as it can.
	QPS   float32
	Burst int

	// ServiceAccountDir holds the token and the authority of the pod's own
	// account; it is used if there is no kubeconfig. ServiceHost and
	// ServicePort say where the server is, unless Server does.
	ServiceAccountDir        string
	ServiceHost, ServicePort string

	// Group is where Calico's objects are; empty: the server is asked before
	// the first call.
	Group model.APIGroup
	// InterfacePrefix begins the names of the pods' host interfaces; empty:
	// the usual one.
	InterfacePrefix string
}

// GroupNamed is the group that calico_api_group names: empty if it names none,
// so that the server has to be asked (datastore contract 1.1).
func GroupNamed(name string) model.APIGroup {
	switch {
	case name == "":
		return ""
	case strings.EqualFold(name, string(model.GroupV3)):
		return model.GroupV3
	}
	return model.GroupV1
}
