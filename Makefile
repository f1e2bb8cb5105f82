# make demo and make test do all their set-up themselves; see README.md.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# What setup installs, the other steps need.
.NOTPARALLEL:
.PHONY: build demo test lint dist rows clean setup

build:
	@scripts/build bin

demo: setup build
	@test/demo/run

# The run is kept for "make rows". Servers and namespaces are the tests' own.
test: setup build
	@scripts/test ./...

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
