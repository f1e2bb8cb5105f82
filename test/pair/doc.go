// Package pair tests both plugins together: the executables of bin/, run as a
// container runtime runs them, on a real kernel.
//
// It contains tests only. Every test plays on a host of its own, made of a
// network namespace and private folders in place of /var/lib and /run, and
// never touches the machine's. It may import the model to read what the
// plugins wrote, and nothing that the plugins decide with. The tests with the
// build tag kubernetes need an API server and run by make test-kubernetes.
package pair
