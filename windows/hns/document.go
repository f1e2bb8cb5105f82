package hns

import "encoding/json"

// The documents below have the members that the data plane reads or writes, in
// the spelling of HCN schema 2.0. A document that was read is never written
// back, so members that are missing here are not lost.

// SchemaVersion is the version of a document.
type SchemaVersion struct {
	Major int `json:"Major"`
	Minor int `json:"Minor"`
}

// Schema2 is the only version that is written.
func Schema2() SchemaVersion { return SchemaVersion{Major: 2} }

// NetworkType is the kind of a network.
type NetworkType string

// The kinds of network that pods are put on.
const (
	Overlay  NetworkType = "Overlay"
	L2Bridge NetworkType = "L2Bridge"
)

// The types of policies that the data plane knows by name.
const (
	PolicyACL             = "ACL"
	PolicyDrMacAddress    = "DrMacAddress"
	PolicyHostRoute       = "HostRoute"
	PolicyOutBoundNAT     = "OutBoundNAT"
	PolicyProviderAddress = "ProviderAddress"
	PolicySDNRoute        = "SDNRoute"
	PolicyVSID            = "VSID"
)

// Policy is a policy of a network, a subnet or an endpoint.
type Policy struct {
	Type     string          `json:"Type"`
	Settings json.RawMessage `json:"Settings,omitempty"`
}

// Route is a route of a subnet or an endpoint.
type Route struct {
	NextHop           string `json:"NextHop,omitempty"`
	DestinationPrefix string `json:"DestinationPrefix,omitempty"`
	Metric            uint16 `json:"Metric,omitempty"`
}

// Subnet is one range of a network.
type Subnet struct {
	IPAddressPrefix string   `json:"IpAddressPrefix,omitempty"`
	Policies        []Policy `json:"Policies,omitempty"`
	Routes          []Route  `json:"Routes,omitempty"`
}

// Ipam holds the ranges of a network.
type Ipam struct {
	Type    string   `json:"Type,omitempty"`
	Subnets []Subnet `json:"Subnets,omitempty"`
}

// Network is a network: a virtual switch with ranges.
type Network struct {
	ID            string        `json:"ID,omitempty"`
	Name          string        `json:"Name,omitempty"`
	Type          NetworkType   `json:"Type,omitempty"`
	Policies      []Policy      `json:"Policies,omitempty"`
	Ipams         []Ipam        `json:"Ipams,omitempty"`
	SchemaVersion SchemaVersion `json:"SchemaVersion"`
}

// DNS is the resolver configuration of an endpoint.
type DNS struct {
	Domain     string   `json:"Domain,omitempty"`
	Search     []string `json:"Search,omitempty"`
	ServerList []string `json:"ServerList,omitempty"`
	Options    []string `json:"Options,omitempty"`
}

// IPConfiguration is an address of an endpoint.
type IPConfiguration struct {
	IPAddress    string `json:"IpAddress,omitempty"`
	PrefixLength uint8  `json:"PrefixLength,omitempty"`
}

// FlagRemote marks an endpoint of another node: it is attached to nothing here.
const FlagRemote = 1

// Endpoint is a port of a network.
type Endpoint struct {
	ID                   string            `json:"ID,omitempty"`
	Name                 string            `json:"Name,omitempty"`
	HostComputeNetwork   string            `json:"HostComputeNetwork,omitempty"`
	HostComputeNamespace string            `json:"HostComputeNamespace,omitempty"`
	Policies             []Policy          `json:"Policies,omitempty"`
	IPConfigurations     []IPConfiguration `json:"IpConfigurations,omitempty"`
	DNS                  DNS               `json:"Dns,omitzero"`
	Routes               []Route           `json:"Routes,omitempty"`
	MACAddress           string            `json:"MacAddress,omitempty"`
	Flags                uint32            `json:"Flags,omitempty"`
	SchemaVersion        SchemaVersion     `json:"SchemaVersion"`
}

// NamespaceHostDefault is the type of the namespace that the host's own
// processes are in.
const NamespaceHostDefault = "HostDefault"

// Namespace is a network compartment.
type Namespace struct {
	ID            string        `json:"ID,omitempty"`
	Type          string        `json:"Type,omitempty"`
	Resources     []Resource    `json:"Resources,omitempty"`
	SchemaVersion SchemaVersion `json:"SchemaVersion"`
}

// ResourceEndpoint is the type of an endpoint among a namespace's resources.
const ResourceEndpoint = "Endpoint"

// Resource is something that is in a namespace.
type Resource struct {
	Type string `json:"Type"`
	Data struct {
		ID string `json:"Id"`
	} `json:"Data"`
}
