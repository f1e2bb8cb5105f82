// Package docs holds the tests that keep docs/ true: what the code has, the
// documents must describe.
//
// It contains tests only and may import any package of this module.
package docs
