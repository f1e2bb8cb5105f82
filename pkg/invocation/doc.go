// Package invocation is the CNI protocol as a plugin sees it: the environment
// and stdin of one call, checked, and one JSON object on stdout at its end.
//
// It replaces the protocol library's skeleton where that one differs from what
// this product promises: the namespace check comes before a verb instead of
// after it, error objects carry cniVersion, all errors of a call are found
// before the verb runs, and a panic is an error object too. Result types and
// version documents are the library's.
package invocation
