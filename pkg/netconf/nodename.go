package netconf

import (
	"strings"

	"calico-cni/pkg/cnierr"
)

const nodeNameMax = 253

// NodeName chooses the node's name (network plugin contract 3): nodename, the
// content of nodename_file ("" if it cannot be read), hostname, the operating
// system's host name in lower case.
func (c *Config) NodeName(fileContent, osHostname string) (string, error) {
	sources := []struct{ source, name string }{
		{"network configuration key nodename", c.Nodename},
		{"content of " + c.NodenameFile, fileContent},
		{"network configuration key hostname", c.Hostname},
		{"host name of the operating system", strings.ToLower(osHostname)},
	}
	for _, s := range sources {
		if name := strings.TrimSpace(s.name); name != "" {
			return name, checkNodeName(s.source, name)
		}
	}
	return "", cnierr.New(cnierr.InvalidConfiguration,
		"no name for this node: nodename is not set, %s has no content and the operating system has no host name", c.NodenameFile)
}

// NamesNode reports whether the configuration itself says which node this is.
func (c *Config) NamesNode() bool { return strings.TrimSpace(c.Nodename) != "" }

// checkNodeName accepts an absent name. A name is a segment of datastore keys,
// so it must not begin or end with a dash.
func checkNodeName(source, name string) error {
	name = strings.TrimSpace(name)
	if name == "" || isNodeName(name) {
		return nil
	}
	return cnierr.New(cnierr.InvalidConfiguration,
		"%s: %q is not a node name: use 1 to %d letters, digits, \".\", \"_\" and \"-\", with a letter or a digit at both ends", source, name, nodeNameMax)
}

func isNodeName(name string) bool {
	if len(name) > nodeNameMax || !isAlphanumeric(name[0]) || !isAlphanumeric(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
