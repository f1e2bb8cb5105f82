package netconf

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"calico-cni/pkg/cnierr"
)

// IPAM plugins that are treated specially.
const (
	IPAMCalico    = "calico-ipam"
	IPAMHostLocal = "host-local"
	IPAMAzure     = "azure-vnet-ipam"
)

// IPAM is the ipam object. Members that only other IPAM plugins read are kept
// raw: what is right in them is for those plugins to say.
type IPAM struct {
	Type string `json:"type"`
	// AssignIPv4 and AssignIPv6 are texts; see AssignsIPv4, AssignsIPv6.
	AssignIPv4 string   `json:"assign_ipv4"`
	AssignIPv6 string   `json:"assign_ipv6"`
	IPv4Pools  []string `json:"ipv4_pools"`
	IPv6Pools  []string `json:"ipv6_pools"`

	Subnet     json.RawMessage `json:"subnet"`
	Ranges     json.RawMessage `json:"ranges"`
	RangeStart json.RawMessage `json:"rangeStart"`
	RangeEnd   json.RawMessage `json:"rangeEnd"`
	Routes     json.RawMessage `json:"routes"`
}

// AssignsIPv4 reports whether calico-ipam gives an IPv4 address: unless
// assign_ipv4 is exactly "false".
func (i IPAM) AssignsIPv4() bool { return i.AssignIPv4 != "false" }

// AssignsIPv6 reports whether calico-ipam gives an IPv6 address: only if
// assign_ipv6 is exactly "true".
func (i IPAM) AssignsIPv6() bool { return i.AssignIPv6 == "true" }

// RouteDestinations are the destinations of ipam.routes, masked. Gateways are
// ignored and entries without dst skipped.
func (i IPAM) RouteDestinations() ([]netip.Prefix, error) {
	routes, err := listOf("ipam.routes", "a list of objects", i.Routes)
	if err != nil {
		return nil, err
	}
	var destinations []netip.Prefix
	for n, route := range routes {
		at := fmt.Sprintf("ipam.routes[%d]", n)
		object, isObject := route.(map[string]any)
		if !isObject {
			return nil, wantAt(at, "an object", route)
		}
		dst := member(object, "dst")
		if dst == nil {
			continue
		}
		text, isText := dst.(string)
		if !isText {
			return nil, wantAt(at+".dst", "a string", dst)
		}
		destination, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, cnierr.New(cnierr.InvalidConfiguration,
				"network configuration key %s.dst: %q is not a CIDR: write address/length", at, text)
		}
		destinations = append(destinations, destination.Masked())
	}
	return destinations, nil
}
