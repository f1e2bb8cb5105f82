// Package cnierr gives errors the numeric codes of the CNI protocol.
//
// It may import only the CNI types and the standard library. It never decides
// whether something is an error; it only carries the code, and prints the one
// JSON object a CNI plugin owes its caller.
package cnierr
