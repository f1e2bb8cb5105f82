package node

import (
	"fmt"
	"testing"
)

const (
	kubeletConfig     = "/etc/kubernetes/kubelet.yaml"
	kubeletKubeconfig = "/etc/kubernetes/kubelet.conf"
	// ManifestFolder is where the kubelet looks for static pods.
	ManifestFolder = "/etc/kubernetes/manifests"
)

// kubeletText is the configuration of an ordinary node, but for what a machine
// shared with others makes necessary: no eviction, no limit of its own, and
// either version of control groups.
const kubeletText = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://` + containerdSocket + `
staticPodPath: ` + ManifestFolder + `
fileCheckFrequency: 1s
cgroupDriver: cgroupfs
cgroupRoot: /%s
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
oomScoreAdj: 0
maxOpenFiles: 20000
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
resolvConf: ""
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: "0%%", imagefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.inodesFree: "0%%"}
nodeStatusUpdateFrequency: 2s
`

// StartKubelet runs a kubelet with this kubeconfig until the node ends. It is
// one of the programs that the node was made with.
func (n *Node) StartKubelet(t testing.TB, kubeconfig string) *Program {
	t.Helper()
	n.Write(t, kubeletConfig, fmt.Sprintf(kubeletText, n.cgroup), 0o644)
	n.Write(t, kubeletKubeconfig, kubeconfig, 0o600)
	n.Write(t, ManifestFolder+"/.keep", "", 0o644)
	return n.start(t, "kubelet", "--config="+kubeletConfig, "--kubeconfig="+kubeletKubeconfig,
		"--hostname-override="+n.Name, "--node-ip="+n.Address+","+n.Address6, "--v=2")
}

// Await asks until there is no error; it fails if the program ends, or if that
// takes too long.
func (p *Program) Await(t testing.TB, what string, ask func() error) {
	t.Helper()
	p.await(t, what, ask)
}
