package netconf

import "fmt"

// Device types of the pod's interface.
const (
	DeviceVeth   = "veth"
	DeviceNetkit = "netkit"
)

// Defaults of the network plugin contract 2, as changed by "where we go beyond
// the reference" 3 and 5.
const (
	defaultLogFileMaxSize    = 10 // MB
	defaultLogFileMaxAge     = 30 // days
	defaultLogFileMaxCount   = 3
	defaultTimeoutSeconds    = 90
	maxTimeoutSeconds        = 24 * 60 * 60
	defaultNodenameFile      = "/var/lib/calico/nodename"
	defaultEndpointStatusDir = "/var/run/calico/endpoint-status"
	defaultVNI               = 4096
	defaultMACPrefix         = "0E-2A"
)

func (c *Config) applyDefaults(goos string) {
	c.CNIVersion = orText(c.CNIVersion, defaultVersion)
	c.LogLevel = orText(c.LogLevel, "info")
	c.LogFileMaxSize = orPositive(c.LogFileMaxSize, defaultLogFileMaxSize)
	c.LogFileMaxAge = orPositive(c.LogFileMaxAge, defaultLogFileMaxAge)
	c.LogFileMaxCount = orPositive(c.LogFileMaxCount, defaultLogFileMaxCount)
	c.NodenameFile = orText(c.NodenameFile, defaultNodenameFile)
	c.NumQueues = orPositive(c.NumQueues, 1)
	c.DeviceType = orText(c.DeviceType, DeviceVeth)
	c.EndpointStatusDir = orText(c.EndpointStatusDir, defaultEndpointStatusDir)
	c.VXLANMACPrefix = orText(c.VXLANMACPrefix, defaultMACPrefix)
	if c.VXLANVNI == 0 {
		c.VXLANVNI = defaultVNI
	}
	c.requestedTimeout = c.TimeoutSeconds
	if c.TimeoutSeconds < 1 || c.TimeoutSeconds > maxTimeoutSeconds {
		c.TimeoutSeconds = defaultTimeoutSeconds
	}
	if string(c.PrevResult) == "null" {
		c.PrevResult = nil
	}
	paths := defaultPaths(goos)
	c.IPAMLockFile = orText(c.IPAMLockFile, paths.ipamLockFile)
	c.EmbeddedFile = orText(c.EmbeddedFile, paths.embeddedFile)
	for i := range c.Pools {
		c.Pools[i].applyDefaults()
	}
}

func orText(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

func orPositive(value, fallback int) int {
	if value < 1 {
		return fallback
	}
	return value
}

// warnings are about values that are accepted and perhaps not meant.
func (c *Config) warnings() []string {
	var warnings []string
	add := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if c.Type == "" && !c.isPlaceholder("type") {
		add(`key "type" is missing: a runtime needs it to find the plugin`)
	}
	if c.Hostname != "" {
		add(`key "hostname" is deprecated: use "nodename"`)
	}
	if v := c.IPAM.AssignIPv4; v != "" && v != "true" && v != "false" {
		add(`key ipam.assign_ipv4: %q counts as "true": only "false" switches IPv4 off`, v)
	}
	if v := c.IPAM.AssignIPv6; v != "" && v != "true" && v != "false" {
		add(`key ipam.assign_ipv6: %q counts as "false": only "true" switches IPv6 on`, v)
	}
	return warnings
}
