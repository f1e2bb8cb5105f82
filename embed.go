// Package calicocni holds the files at the root of this module that an
// executable carries with it. It contains no code.
package calicocni

import _ "embed" // for the files

// ConfigTemplate is cni.conf.template: what "calico install" renders unless it
// is given another template.
//
//go:embed cni.conf.template
var ConfigTemplate string
