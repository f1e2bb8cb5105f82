// Package netconf is the network configuration a runtime hands over on stdin:
// parsed, defaulted, validated, and rewritten for the IPAM plugin. One type
// serves both operating systems.
//
// It may import the CNI types and pkg/cnierr, pkg/workload and pkg/selector.
// It never reads a file or the environment itself and never logs; warnings
// are returned as text without any value that might be a credential.
package netconf
