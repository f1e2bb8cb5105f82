// Package podman runs what docs/podman.md tells a person to type, with Debian's
// podman and an image made here.
//
// It contains a test only, with the build tag podman, which runs by make
// test-podman: as root, in network, mount and process namespaces of its own
// that take with them all that podman and its containers make.
package podman
