// Package logging sets up log/slog for a process that lives for milliseconds
// beside many of its kind: text to stderr, and to a file that all of them
// append to and rotate.
//
// It may import the standard library and golang.org/x/sys. It never fails a
// verb, never waits for another process, and never logs a value of the
// configuration but the path of a log file that cannot be used.
package logging
