// Package image tests the container image that installs the plugins, without a
// container engine: what scripts/image puts together is run with its own root
// folder, on folders that play the host's.
//
// It contains tests only and may import any package of this module.
package image
