// Package masquerade is for hosts with the embedded datastore, where no policy
// agent runs: traffic from pools with natOutgoing to outside all pools leaves
// under the host's address, and the host forwards packets.
//
// It owns one nftables table and must never touch another. It may import
// pkg/cnierr, knftables and google/nftables, on which knftables stands, and is a
// package of its own because most hosts need neither.
package masquerade
