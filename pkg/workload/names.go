package workload

import (
	"strings"
	"unicode"

	"calico-cni/pkg/cnierr"
)

// DefaultInterfacePrefix begins the host interfaces' names unless the policy
// agent is told otherwise.
const DefaultInterfacePrefix = "cali"

// ifNameMax is the kernel's limit, IFNAMSIZ without the final zero.
const ifNameMax = 15

// InterfacePrefix is the prefix of host interfaces of Kubernetes pods: the
// first item of FELIX_INTERFACEPREFIX, which the policy agent reads as well.
func InterfacePrefix(felixInterfacePrefix string) (string, error) {
	first, _, _ := strings.Cut(felixInterfacePrefix, ",")
	prefix := strings.TrimSpace(first)
	if prefix == "" {
		return DefaultInterfacePrefix, nil
	}
	if broken := ifNameRule(prefix); broken != "" {
		return "", cnierr.New(cnierr.InvalidEnvironment,
			"FELIX_INTERFACEPREFIX: prefix %q cannot begin an interface name: %s", prefix, broken)
	}
	if len(prefix) > ifNameMax-digits {
		return "", cnierr.New(cnierr.InvalidEnvironment,
			"FELIX_INTERFACEPREFIX: prefix %q is too long: %d characters follow it and an interface name has at most %d, so use at most %d",
			prefix, digits, ifNameMax, ifNameMax-digits)
	}
	return prefix, nil
}

// ValidateContainerID checks CNI_CONTAINERID by the rule of the CNI specification.
func ValidateContainerID(id string) error {
	if broken := identifierRule(id); broken != "" {
		return cnierr.New(cnierr.InvalidEnvironment, "CNI_CONTAINERID %q is not a container id: %s", id, broken)
	}
	return nil
}

// ValidateNetworkName checks the configuration's name by the rule of the CNI
// specification; the datastore's keys need no more.
func ValidateNetworkName(name string) error {
	if broken := identifierRule(name); broken != "" {
		return cnierr.New(cnierr.InvalidConfiguration, "network configuration key name: %q is not a network name: %s", name, broken)
	}
	return nil
}

// ValidateIfName checks CNI_IFNAME by the rule of the CNI specification.
func ValidateIfName(name string) error {
	if broken := ifNameRule(name); broken != "" {
		return cnierr.New(cnierr.InvalidEnvironment, "CNI_IFNAME %q is not an interface name: %s", name, broken)
	}
	return nil
}

// identifierRule returns the broken part of [A-Za-z0-9][A-Za-z0-9_.-]*.
func identifierRule(s string) string {
	if s == "" {
		return "it must not be empty"
	}
	if !isAlphanumeric(s[0]) {
		return "it must begin with a letter or a digit"
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("_.-", rune(s[i])) {
			return `only letters, digits, "_", "." and "-" are allowed`
		}
	}
	return ""
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func ifNameRule(name string) string {
	switch {
	case name == "":
		return "it must not be empty"
	case len(name) > ifNameMax:
		return "it must have at most 15 characters"
	case name == "." || name == "..":
		return `it must not be "." or ".."`
	}
	for _, r := range name {
		if r == '/' || r == ':' || unicode.IsSpace(r) {
			return `it must not contain "/", ":" or white space`
		}
	}
	return ""
}
