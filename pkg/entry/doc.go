// Package entry is what both executables do before a verb runs: find out which
// of the two they are, and answer the flags that have nothing to do with CNI.
//
// Only executables import it. It is the one place that reads the process's
// arguments.
package entry
