package netconf

// paths are default file paths.
type paths struct {
	ipamLockFile string
	embeddedFile string
}

// defaultPaths takes the operating system as an argument, so that every
// system's defaults are tested on every system.
func defaultPaths(goos string) paths {
	if goos == "windows" {
		return paths{
			ipamLockFile: `c:\CalicoWindows\ipam.lock`,
			embeddedFile: `c:\CalicoWindows\cni\datastore.db`,
		}
	}
	return paths{
		ipamLockFile: "/var/run/calico/ipam.lock",
		embeddedFile: "/var/lib/calico/cni/datastore.db",
	}
}
