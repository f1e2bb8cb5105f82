package node

import (
	"fmt"
	"testing"
)

const (
	proxyConfig     = "/etc/kubernetes/proxy.yaml"
	proxyKubeconfig = "/etc/kubernetes/proxy.conf"
)

// proxyText configures a kube-proxy that leaves the settings of the whole
// kernel alone.
const proxyText = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: ` + proxyKubeconfig + `}
hostnameOverride: %s
mode: iptables
clusterCIDR: %s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// StartProxy runs a kube-proxy with this kubeconfig until the node ends. It is
// one of the programs that the node was made with.
func (n *Node) StartProxy(t testing.TB, kubeconfig, podCIDR string) *Program {
	t.Helper()
	n.Write(t, proxyConfig, fmt.Sprintf(proxyText, n.Name, podCIDR), 0o644)
	n.Write(t, proxyKubeconfig, kubeconfig, 0o600)
	return n.start(t, "kube-proxy", "--config="+proxyConfig)
}
