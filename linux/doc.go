// Package linux is the Linux data plane: it connects a pod's network namespace
// to the host with a veth or netkit pair, and finds and removes what it made.
//
// Files without a build tag decide: desired state, decision tables, comparison.
// Files for Linux do: netlink and sysctls. The package may import pkg/dataplane,
// pkg/workload, pkg/cnierr, netlink, netns and x/sys. It must never know the
// datastore or the configuration, and never touch an interface that the
// decision tables do not name.
package linux
