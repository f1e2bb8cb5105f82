// Package ipam gives addresses to workloads from blocks that hosts own.
//
// What to do is decided by functions of what was read; a thin engine reads,
// asks them, and writes (IPAM contract, sections 2 to 6). It may import model,
// datastore, selector and cnierr. It never touches the host's network, takes
// no lock, and lists blocks only where the contract allows it.
package ipam
