// Package kubevirt decides how the addresses of virtual machines are booked:
// they belong to the machine and outlive the pods that it runs in (IPAM
// contract 9).
//
// Its functions are pure. It may import model, cnierr and, for what a handle
// holds, ipam; it never reads or writes a datastore.
package kubevirt
