// Package wine is the host of the executables for Windows in tests: a prefix of
// Wine with the pair in C:\k\cni, and the DLLs that forward to a simulated host.
//
// It starts Wine's server for its own prefix only, ends what it started, and
// leaves nothing but the first prefix in .cache/wine, from which others are
// copied.
package wine
