// Package selector is the label selector language with which pools choose
// nodes and namespaces (IPAM contract 4.1).
//
// It may import the standard library only. It is pure, and it never panics or
// recurses without bound, whatever text it is given.
package selector
