// Package netns gives tests network namespaces of their own, so that none of
// them ever touches the machine's.
//
// It is for tests on Linux as root; it may import only the namespace library,
// and no other package of this module. It must never leave a namespace or a
// thread in one behind.
package netns
