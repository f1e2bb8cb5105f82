// Command rows compares the specification's tables with test runs.
//
// It reads the rows of testdata/rows and the outputs of "go test -json", and
// prints every row that no passing test names; then it exits with status 1. A
// row that a failing test names too is not proven. With -record it writes that
// output while the tests run and shows it to a person. It imports the standard
// library only and runs no test itself.
package main
