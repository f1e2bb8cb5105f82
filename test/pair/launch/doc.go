//go:build linux

// Command launch executes a plugin on a test's host: with the host's own
// /var/lib and /run, which the test keeps in a folder, and behind a system
// call gate if it is given one.
//
//	launch -root DIR [-readonly] [-gate FD -calls NAME,NAME] EXECUTABLE [ARGUMENT...]
//
// The test starts it in the host's network namespace and in a mount namespace
// of its own, so nothing of this is seen outside.
package main
