// Package isolated runs the tests of a package cut off from the machine: in
// process, mount, network, host name and IPC namespaces of their own, with all
// their files in memory. However they end, the kernel then ends every process
// and removes every mount, interface and namespace that they made; control
// groups, which it does not, are removed afterwards or by the next run.
//
// It is for tests on Linux as root; it may import only system libraries, and
// no other package of this module.
package isolated
