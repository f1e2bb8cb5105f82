// Command empty is what starting any Go program costs.
package main

func main() {}
