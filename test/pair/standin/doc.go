// Command standin is a CNI plugin that writes down how it was called and
// answers as the network configuration tells it to. Tests put it where a
// delegating plugin looks for another one.
//
// Its instructions are the member "standin" of the configuration; every call
// is recorded as one JSON line in the file named there. It imports the
// standard library only.
package main
