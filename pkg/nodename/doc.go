// Package nodename finds out which node this is: from the configuration, the
// file that the node agent writes, or the operating system (network plugin
// contract 3, and "where we go beyond the reference" 3).
//
// It reads that one file and the host name, and nothing else.
package nodename
