# make demo and make test do all their set-up themselves; see README.md.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# What setup installs, the other steps need.
.NOTPARALLEL:
.PHONY: build demo test test-kubernetes test-kubernetes-full test-podman test-windows bench bench-kubernetes soak lint dist rows clean distclean setup

build:
	@scripts/build bin

demo: setup build
	@test/demo/run

# The run is kept for "make rows". Servers and namespaces are the tests' own. The
# executables for Windows run under Wine, which mostly waits, beside the others.
test: setup build
	@scripts/setup $(WINE)
	@GOOS=windows GOARCH=amd64 scripts/build dist/windows-amd64
	@scripts/test -tags wine -timeout=15m ./...

# What nodes of a cluster need beside the usual.
NODE := containerd:containerd runc:runc iptables:iptables nsenter:util-linux

# What runs and builds programs for Windows.
WINE := /usr/lib/wine/wine64:wine64 x86_64-w64-mingw32-gcc:gcc-mingw-w64-x86-64

# What needs a real Kubernetes API server, and nodes with containerd and kubelet.
# Kubernetes is built once, which takes minutes.
test-kubernetes: setup build
	@scripts/setup $(NODE)
	@scripts/kubernetes-binaries kube-apiserver kubelet >/dev/null
	@RUN=kubernetes scripts/test -tags kubernetes -timeout=15m ./test/kubernetes/...
	@RUN=kubernetes-pair scripts/test -tags kubernetes -timeout=15m -run='^TestKubernetes' ./test/pair
	@RUN=kubernetes-cluster scripts/test -tags kubernetes -timeout=15m ./test/cluster
	@scripts/setup $(WINE)
	@GOOS=windows GOARCH=amd64 scripts/build dist/windows-amd64
	@RUN=kubernetes-windows scripts/test -tags kubernetes,wine -timeout=15m -run='^TestKubernetes' ./test/windows

# A whole cluster, with a Deployment behind a ClusterIP. Not part of CI; what a
# run printed is in docs/kubernetes-full.txt.
test-kubernetes-full: setup build
	@scripts/setup $(NODE)
	@scripts/kubernetes-binaries kube-apiserver kubelet kube-controller-manager kube-scheduler kube-proxy >/dev/null
	@go test -tags kubernetes,kubernetesfull -count=1 -timeout=10m -v -run='^TestFull$$' ./test/cluster

# What docs/podman.md says, with Debian's podman.
test-podman: setup build
	@scripts/setup podman:podman conmon:conmon crun:crun
	@go test -tags podman -count=1 -timeout=5m ./test/podman

# What the plugins cost as whole processes, beside what nothing could be faster than.
bench: setup build
	@go run ./test/bench

# The same on a real API server, near and 10 ms away.
bench-kubernetes: setup build
	@scripts/kubernetes-binaries kube-apiserver >/dev/null
	@go run ./test/bench -engines kubernetes,kubernetes+10ms

# The fault tests in their long form. SEED=n repeats what a run has done.
MINUTES := 20
soak: setup build
	@scripts/soak $(MINUTES)

# Only the executables for Windows under Wine, against a simulated HNS.
test-windows: setup
	@scripts/setup $(WINE)
	@GOOS=windows GOARCH=amd64 scripts/build dist/windows-amd64
	@RUN=windows scripts/test -tags wine -timeout=15m ./test/windows/...

lint:
	@scripts/lint

dist:
	@GOOS=linux   GOARCH=amd64 scripts/build dist/linux-amd64
	@GOOS=linux   GOARCH=arm64 scripts/build dist/linux-arm64
	@GOOS=windows GOARCH=amd64 scripts/build dist/windows-amd64

# Prints the rows of the specification's tables that the last runs of make test
# and make test-kubernetes did not prove.
rows:
	@go run ./test/rows

setup:
	@scripts/setup

clean:
	rm -rf bin dist image image-windows .cache/test*.json .cache/build.lock

# What takes minutes to make again: the programs of Kubernetes.
distclean: clean
	rm -rf .cache
