module calico-cni/test/tools/gocni

go 1.24.0

require github.com/containerd/go-cni v1.1.6

require github.com/containernetworking/cni v1.1.1 // indirect
