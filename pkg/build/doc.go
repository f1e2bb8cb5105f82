// Package build says which build of the product is running, and whether
// another executable comes from the very same one.
//
// Its two variables are set by the linker; nothing else may write them.
package build
