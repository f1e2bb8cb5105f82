// Package upgrade moves a node from host-local to calico-ipam: what host-local
// has given to pods is booked in calico-ipam, under the handles by which DEL
// will find it (IPAM contract 11).
//
// What to do with each file is decided by pure functions; a thin shell does it,
// such that whoever is killed at any point can begin again. It may import model,
// datastore, ipam, connect, netconf, hostlock and cnierr; it never touches a
// pod's interfaces.
package upgrade
