package shortlived

import "runtime"

func init() {
	// More threads only cost their creation.
	runtime.GOMAXPROCS(1)
	calmMonitor()
}
