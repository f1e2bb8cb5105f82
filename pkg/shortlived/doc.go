// Package shortlived makes a process cheap that lives for milliseconds. A
// command imports it for that alone, and nothing else does.
//
// It works while it is initialized, because most of such a life is over when
// main begins. Packages are initialized in the order of their paths as far as
// their imports allow, so this one imports next to nothing.
package shortlived
