// Package annotation reads what pods and namespaces ask of their network by
// annotations (network plugin contract 5).
//
// It only parses and checks: whoever uses it fetches the objects, and carries
// out what they ask for. It may import pkg/cnierr and pkg/model and does no I/O.
package annotation
