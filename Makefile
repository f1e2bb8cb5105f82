# make demo and make test do all their set-up themselves; see README.md.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# What setup installs, the other steps need.
.NOTPARALLEL:
.PHONY: build demo test test-kubernetes test-podman test-windows bench lint dist rows clean setup

build:
	@scripts/build bin

demo: setup build
	@test/demo/run

# The run is kept for "make rows". Servers and namespaces are the tests' own.
test: setup build
	@scripts/test ./...

# What needs a real Kubernetes API server; it is built once, which takes minutes.
test-kubernetes: setup build
	@scripts/kubernetes-binaries kube-apiserver >/dev/null
	@go test -tags kubernetes -count=1 -timeout=15m ./test/kubernetes/...
	@go -C test/pair test -tags kubernetes -count=1 -timeout=15m -run='^TestKubernetes' # prints what it measured

# What docs/podman.md says, with Debian's podman.
test-podman: setup build
	@scripts/setup podman:podman conmon:conmon crun:crun
	@go test -tags podman -count=1 -timeout=5m ./test/podman

# What the plugins cost as whole processes, beside what nothing could be faster than.
bench: setup build
	@go run ./test/bench

# The executables for Windows under Wine, against a simulated HNS.
test-windows: setup
	@scripts/setup /usr/lib/wine/wine64:wine64 x86_64-w64-mingw32-gcc:gcc-mingw-w64-x86-64
	@GOOS=windows GOARCH=amd64 scripts/build dist/windows-amd64
	@go test -tags wine -count=1 -timeout=10m ./test/windows/...

lint:
	@scripts/lint

dist:
	@GOOS=linux   GOARCH=amd64 scripts/build dist/linux-amd64
	@GOOS=linux   GOARCH=arm64 scripts/build dist/linux-arm64
	@GOOS=windows GOARCH=amd64 scripts/build dist/windows-amd64

# Prints the rows of the specification's tables that the last test run did not prove.
rows:
	@go run ./test/rows

setup:
	@scripts/setup

clean:
	rm -rf bin dist .cache
