//go:build !windows

package installer

func hasDSR() bool { return false }
