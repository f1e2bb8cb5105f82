package linux

import (
	"calico-cni/pkg/cnierr"
)

// Forwarding fails with code 51 if the host does not forward packets of a
// family that pods use.
func Forwarding(v4, v6 bool) error {
	if v4 {
		if err := forwards("IPv4", "ipv4/ip_forward"); err != nil {
			return err
		}
	}
	if v6 {
		return forwards("IPv6", "ipv6/conf/all/forwarding")
	}
	return nil
}

func forwards(family, path string) error {
	s := sysctl{path: path}
	value, err := readSysctl(path)
	if err != nil {
		return cnierr.New(cnierr.LimitedConnectivity,
			"%s forwarding of the host is unknown: reading sysctl %s: %w; the kernel must have %s enabled", family, s.name(), err, family)
	}
	if value == "0" {
		return cnierr.New(cnierr.LimitedConnectivity,
			"%s forwarding of the host is off, so pods reach nothing outside it: sysctl %s is %s; set it to 1", family, s.name(), value)
	}
	return nil
}
