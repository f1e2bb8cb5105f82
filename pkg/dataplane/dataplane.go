package dataplane

import (
	"context"
	"net"
	"net/netip"

	"calico-cni/pkg/workload"
)

// Record is what the endpoint record in the datastore says of a pod. The zero
// value means that there is none.
type Record struct {
	ContainerID   string
	InterfaceName string
	Addresses     []netip.Addr
}

// Names reports whether the record names the container that an alias tells.
func (r Record) Names(owner workload.Owner) bool {
	return r.ContainerID != "" && owner.HasContainer(r.ContainerID)
}

// RecordReader reads the endpoint record of a pod afresh.
type RecordReader func(context.Context) (Record, error)

// Request is everything ADD needs to know about one interface.
type Request struct {
	Attachment workload.Attachment
	// Kubernetes is true if the orchestrator is Kubernetes, whose container
	// ids change while the host interface's name stays.
	Kubernetes bool
	// Namespace is the pod's network namespace (Linux: a path).
	Namespace string
	// HostInterface is the computed name of the host end, SecondInterface the
	// one used if the first belongs to another interface that must stay.
	HostInterface   string
	SecondInterface string
	// Addresses go on the pod's end as /32 and /128, in the order given.
	Addresses []netip.Addr
	// Routes are the destinations that the pod reaches through us.
	Routes []netip.Prefix
	// MTU 0 leaves the kernel's default.
	MTU    int
	Queues int
	// Device is "veth" or "netkit".
	Device string
	// MAC of the pod's end; nil leaves the kernel's choice.
	MAC               net.HardwareAddr
	AllowIPForwarding bool
	// SkipHostRoutes is set for a live-migration target, whose address still
	// belongs to another node.
	SkipHostRoutes bool
	// RecordAtStart is the endpoint record as ADD found it at its start;
	// ReadRecord reads it again.
	RecordAtStart Record
	ReadRecord    RecordReader
	// What follows is for Windows only. Prefixes are the addresses with the
	// lengths that the IPAM plugin returned: they tell the node's subnet.
	Prefixes []netip.Prefix
	Pools    []Pool
	DNS      DNS
}

// Pool is a range of the cluster, as the policies of an endpoint need it.
type Pool struct {
	Name                string
	CIDR                netip.Prefix
	NATOutgoing         bool
	IPIPMode, VXLANMode string
}

// DNS is the resolver configuration of a pod.
type DNS struct {
	Servers []string
	Domain  string
	Search  []string
	Options []string
}

// Tunnel is the end of this host's VXLAN tunnels.
type Tunnel struct {
	Address netip.Addr
	// MAC is lower case with colons.
	MAC string
}

// Link is a host interface that ADD made.
type Link struct {
	HostInterface string
	// Index of the host interface; 0 where the operating system has none.
	Index int
	// MAC of the pod's end, lower case with colons.
	MAC string
	// Second is true if the interface got the second name, because another
	// interface of the same sandbox, or a stranger, holds the first.
	Second bool
	// What follows is set on Windows only. ID is the endpoint's, ReportedMAC the
	// MAC as the result shows it, Prefixes the addresses likewise.
	ID          string
	ReportedMAC string
	Prefixes    []netip.Prefix
	// Tunnels are the ends of the node's VXLAN networks, that of the pod's own
	// network first. It is empty if they are not known yet.
	Tunnels []Tunnel
}

// Removal is what DEL knows of the interface it is to remove.
type Removal struct {
	Attachment workload.Attachment
	Namespace  string
	// Record is the endpoint record as DEL found it.
	Record Record
}

// Expectation is what CHECK compares the host with. It comes from prevResult,
// the allocation and the endpoint record, never from today's configuration.
type Expectation struct {
	Attachment workload.Attachment
	Namespace  string
	Addresses  []netip.Addr
	// MAC "" and MTU 0 are not compared.
	MAC string
	MTU int
	// RoutesUnknown is set if a family may legitimately have no route through
	// us (host-local with routes of its own).
	RoutesUnknown bool
	// SkipHostRoutes: see Request.
	SkipHostRoutes bool
}

// Found is a host interface that names its owner.
type Found struct {
	HostInterface string
	Index         int
	// ID is the endpoint's; Linux has none.
	ID    string
	Alias string
	Owner workload.Owner
}

// Dataplane connects pods of one host. Errors carry CNI codes (pkg/cnierr) and
// name the object. Every method honours its context's deadline.
type Dataplane interface {
	// Validate reports whether a verb may use the namespace at all: code 4 if
	// it does not exist or is none, code 8 if it is the plugin's own.
	Validate(namespace string) error
	// Possible fails if ADD can never do what the configuration asks for.
	Possible() error
	// HasInterface reports whether the pod has an interface of that name. A
	// namespace that is gone has none.
	HasInterface(namespace, ifName string) (bool, error)
	// Add connects the pod. On error everything it made is gone again.
	Add(context.Context, Request) (Link, error)
	// Confirm fails with code 118 if a link that Add made is gone.
	Confirm(context.Context, Link) error
	// Undo removes a link that Add made; one that is gone is no error.
	Undo(context.Context, Link) error
	// Delete removes what belongs to this attachment and nothing else.
	Delete(context.Context, Removal) error
	// Differences lists what is not as expected, one sentence each; it waits
	// up to 2 s for the host to converge.
	Differences(context.Context, Expectation) ([]string, error)
	// Owned lists the host interfaces that name an owner.
	Owned(context.Context) ([]Found, error)
	// OwnedBy lists those of one container in one network. On Windows a
	// container has one at most, whatever its interfaces are called.
	OwnedBy(context.Context, workload.Attachment) ([]Found, error)
	// Remove deletes one of Owned if it still names the same owner; one that
	// is gone is no error.
	Remove(context.Context, Found) error
	// Tunnels asks for Link.Tunnels again, and fails if they cannot be published.
	Tunnels(context.Context, Link) ([]Tunnel, error)
	// Serves fails with code 51 if the host lacks what running pods need of the
	// data plane. inUse reports whether addresses of this node are allocated.
	Serves(ctx context.Context, inUse func(context.Context) (bool, error)) error
}
