//go:build linux

// Package gate lets a test decide about system calls of another process: each
// can be let through, refused with an errno, or kept waiting until the test
// says so. That way a plugin is stopped, or made to fail, at exactly one
// netlink request or file lock, without a debugger and without a hook in it.
//
// It uses the kernel's seccomp user notification, so it needs root. It may
// import golang.org/x/sys only, and must never outlive the process it watches.
package gate
