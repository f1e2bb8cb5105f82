//go:build !linux

package shortlived

func calmMonitor() {}
