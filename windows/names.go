package windows

import (
	"strings"
)

// networkName is the name of the network for a subnet. Other agents look for
// networks whose name begins with the configuration's.
func (o Options) networkName(s subnet) string {
	if o.SingleNetwork {
		return o.Name
	}
	return o.Name + "-" + strings.ReplaceAll(s.prefix.Masked().Addr().String(), ".", "-")
}

// isOurs reports whether a network of this name is one that this plugin makes,
// with any setting of windows_use_single_network.
func (o Options) isOurs(network string) bool {
	return network == o.Name || o.isOfSubnet(network)
}

// isOfSubnet reports whether a network's name is the long one.
func (o Options) isOfSubnet(network string) bool {
	address, found := strings.CutPrefix(network, o.Name+"-")
	if !found {
		return false
	}
	parts := strings.Split(address, "-")
	if len(parts) != 4 {
		return false
	}
	for _, part := range parts {
		if part == "" || len(part) > 3 || strings.Trim(part, "0123456789") != "" {
			return false
		}
	}
	return true
}

// hostEndpointName is an external contract: start scripts look the endpoint up.
func hostEndpointName(network string) string { return network + "_ep" }

// endpointName is the same whatever the network's name: DEL finds the endpoint
// after the flag was switched.
func (o Options) endpointName(containerID string) string { return containerID + o.endpointSuffix() }

func (o Options) endpointSuffix() string { return "_" + o.Name }

// containerOf is the container that an endpoint on one of our networks is for;
// ok is false if its name is none that this plugin gives.
func (o Options) containerOf(endpoint string) (containerID string, ok bool) {
	containerID, ok = strings.CutSuffix(endpoint, o.endpointSuffix())
	return containerID, ok && containerID != ""
}
