// Package operator is the IPAM plugin's commands for a person: they show how
// addresses are used, and the routes that follow from it. They change nothing,
// and exit with 0 if all is well, 1 if something is wrong and 2 if they could
// not run.
package operator
