// Package job is what the benchmark and its runner say to each other. It
// imports the standard library only.
package job
