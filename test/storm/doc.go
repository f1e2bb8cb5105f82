// Package storm runs the pair as a busy node does: many processes at once,
// killed at any moment, called again and in any order, and looks afterwards at
// everything that must or must not be left.
//
// It contains tests only: for Linux, as root, with the executables of bin/.
// Every storm rages on a host of its own, made of a network namespace and
// private folders. It may import nothing that the plugins decide with. What it
// does is a function of a seed, which a failing test prints with the history.
package storm
