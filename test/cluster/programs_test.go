//go:build kubernetes && !kubernetesfull && linux

package cluster

// programs are those of Kubernetes that the tests run.
var programs = []string{"kube-apiserver", "kubelet"}
