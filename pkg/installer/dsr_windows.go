package installer

import (
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// hasDSR takes a revision that cannot be read for 0.
func hasDSR() bool {
	var revision uint64
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, `SOFTWARE\Microsoft\Windows NT\CurrentVersion`, registry.QUERY_VALUE)
	if err == nil {
		defer key.Close()
		if value, _, err := key.GetIntegerValue("UBR"); err == nil {
			revision = value
		}
	}
	return supportsDSR(uint64(windows.RtlGetVersion().BuildNumber), revision)
}
