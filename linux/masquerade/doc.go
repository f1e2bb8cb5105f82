// Package masquerade is for hosts with the embedded datastore, where no policy
// agent runs: traffic from pools with natOutgoing to outside all pools leaves
// under the host's address, and the host forwards packets.
//
// It owns one nftables table and must never touch another. It may import
// pkg/cnierr and the kernel's nftables through google/nftables, and executes no
// program.
package masquerade
